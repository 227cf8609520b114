"""`stillmotion <verb>`: one table from a verb to a function, whose signature is its options.

A package adds a verb by an entry point of the group "stillmotion.verbs" (docs/extending.md)."""

from collections.abc import Callable
from typing import Any

from stillmotion.utils.registry import Registry

# Verbs by the functions that do them, which are imported when they are asked for.
VERBS: Registry[str | Callable[..., Any]] = Registry(
    "verb",
    "verbs",
    {
        "browse": "search:browse",
        "demo": "studies:demo",
        "pretrain": "training:pretrain",
        "transfer": "training:transfer",
        "finetune": "training:finetune",
        "detect": "training:detect",
        "segment": "training:segment",
        "estimate": "training:estimate",
        "probe": "evaluation:probe",
        "retrieve": "evaluation:retrieve",
        "cluster": "evaluation:cluster",
        "order": "evaluation:order",
        "propagate": "evaluation:propagate",
        "geometry": "evaluation:geometry",
        "index": "search:index",
        "search": "search:search",
        "embed": "search:embed",
        "explain": "reports:explain",
        "report": "reports:report",
        "study confounding": "studies:confounding",
        "study sweep": "studies:sweep",
        "study spectrum": "studies:spectrum",
        "study still-clips": "evaluation:still_clips",
        "study transfer": "studies:transfer",
        "static-dynamic make": "data:static_dynamic_make",
        "static-dynamic evaluate": "evaluation:static_dynamic_evaluate",
        "prepare": "data:prepare",
        "data verify": "data:data_verify",
    },
)
# Those that `torchrun` does not make quicker: its processes would do the same, and write the same files.
SINGLE_PROCESS_VERBS = {
    *("browse", "demo", "estimate", "propagate", "geometry", "search", "explain", "report", "data verify"),
    *("study confounding", "study sweep", "study spectrum", "study still-clips", "study transfer"),
}
