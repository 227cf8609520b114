"""Names of options that mean the same in every verb, wherever in a configuration they stand.

A field of one of these types is typed as `--data`, `--layout`, …, and not by its place, as `--data.path` would be.
"""

from typing import Annotated, Literal

from tyro.conf import arg

FeatureKind = Literal["concat", "whole", "static", "dynamic", "motion"]  # of embeddings; concat is static ⊕ dynamic
FOLD_ARG = arg(name="fold", prefix_name=False)
DataPath = Annotated[str, arg(name="data", prefix_name=False, metavar="FOLDER")]
AnnotationsPath = Annotated[str | None, arg(name="annotations", prefix_name=False, metavar="FOLDER")]
SplitName = Annotated[str | None, arg(name="split", prefix_name=False, metavar="NAME")]
FoldNumber = Annotated[int | None, FOLD_ARG]
NumWorkers = Annotated[int, arg(name="num-workers", prefix_name=False, metavar="N")]
DeviceName = Annotated[
    str,
    arg(
        name="device",
        prefix_name=False,
        metavar="DEVICE",
        help="Device to run on: auto, cpu, cuda, or any torch device string.",
    ),
]
