"""Names of options that mean the same in every verb, wherever in a configuration they stand.

A field of one of these types is typed as `--data`, `--layout`, …, and not by its place, as `--data.path` would be.
"""

from typing import Annotated, Literal

from tyro.conf import arg

Kind = Literal["both", "whole", "static", "dynamic", "motion"]  # of embeddings; both is static ⊕ dynamic
FOLD = arg(name="fold", prefix_name=False)
DataPath = Annotated[str, arg(name="data", prefix_name=False)]
Annotations = Annotated[str | None, arg(name="annotations", prefix_name=False)]
Split = Annotated[str | None, arg(name="split", prefix_name=False)]
Fold = Annotated[int | None, FOLD]
Workers = Annotated[int, arg(name="workers", prefix_name=False)]
Device = Annotated[str, arg(name="device", prefix_name=False, help="auto, cpu, cuda or another torch device.")]
