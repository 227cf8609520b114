"""Types of options that have the same name in every verb, wherever they are in a configuration.

A field of one of these types becomes `--data`, `--layout`, … instead of `--data.path`.
"""

from typing import Annotated, Literal

from tyro.conf import arg

FeatureKind = Literal["concat", "whole", "static", "dynamic", "motion"]  # of embeddings; concat is static ⊕ dynamic
DemoObjective = Literal["simclr", "moco", "byol", "swav", "vicreg"]
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
