"""The table of verbs: what `stillmotion VERB` calls, its group in the overview and its summary.

Packages add verbs by entry points of the group "stillmotion.verbs" (docs/guides/extending.md).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from stillmotion.utils.registry import Registry

GROUP_TITLES = {
    "find": "Find videos",
    "train": "Train",
    "evaluate": "Evaluate and inspect encoders",
    "data": "Prepare data",
    "studies": "Studies",
    "plugins": "From other packages",
}


class Verb(NamedTuple):
    """A row of the table.

    Attributes:
        function: The command as "module:function" below `stillmotion.cli.commands`, imported when it is called.
        group: Key of `GROUP_TITLES`.
        summary: First line of the verb's help.
        single_process: Whether `torchrun` is refused, because all processes would do the same work.
    """

    function: str
    group: str
    summary: str
    single_process: bool = False


# fmt: off
_ROWS = {
    "browse": Verb("search:browse", "find",
        "Open a local web page over a folder of videos: similar appearance, similar motion, a map and groups.", True),
    "index": Verb("search:index", "find", "Build or update a search index of the video segments in a folder."),
    "search": Verb("search:search", "find", "Find video segments with similar motion or appearance.", True),
    "embed": Verb("search:embed", "find", "Write embeddings of videos to a Parquet or npz file."),
    "pretrain": Verb("training:pretrain", "train", "Pre-train a video encoder on unlabeled videos."),
    "transfer": Verb("training:transfer", "train",
        "Adapt a frozen image transformer to video by training a small projection, without labels."),
    "finetune": Verb("training:finetune", "train",
        "Fine-tune an encoder and a new classifier on labeled videos: top-1, top-5 and confusion matrix."),
    "detect": Verb("training:detect", "train",
        "Spatio-temporal action detection: train a box classifier on an encoder; frame mAP as on AVA."),
    "segment": Verb("training:segment", "train",
        "Temporal action segmentation on frozen features of untrimmed videos."),
    "estimate": Verb("training:estimate", "train",
        "Estimate GPU memory and time of a pre-training run without running it.", True),
    "probe": Verb("evaluation:probe", "evaluate",
        "Linear probe: top-1 and top-5 accuracy of a linear classifier on frozen features."),
    "retrieve": Verb("evaluation:retrieve", "evaluate", "Nearest-neighbor retrieval: Recall@1/5/10 and mAP."),
    "cluster": Verb("evaluation:cluster", "evaluate",
        "Cluster quality: silhouette scores and t-SNE plots of the best-retrieved classes."),
    "order": Verb("evaluation:order", "evaluate", "Arrow-of-time and opposite-action tests on frozen features."),
    "propagate": Verb("evaluation:propagate", "evaluate",
        "Label propagation from the first frame: J&F on DAVIS, mIoU on VIP, PCK on JHMDB.", True),
    "geometry": Verb("evaluation:geometry", "evaluate",
        "Inter- and intra-video distances, cycle accuracy and effective rank of image models.", True),
    "static-dynamic evaluate": Verb("evaluation:static_dynamic_evaluate", "evaluate",
        "Linear probes on the plain, static and dynamic versions of a data set, for several encoders."),
    "explain": Verb("reports:explain", "evaluate",
        "Visualize an encoder on videos: Koopman modes, temporal similarity, Grad-CAM and saliency tubes.", True),
    "report": Verb("reports:report", "evaluate", "Write a self-contained HTML report of a training run.", True),
    "prepare": Verb("data:prepare", "data",
        "Re-encode a data set at a small size with frequent key frames, for fast random access."),
    "static-dynamic make": Verb("data:static_dynamic_make", "data",
        "Write the static (one frame repeated) or dynamic (noise moved by optical flow) version of a data set."),
    "data verify": Verb("data:data_verify", "data",
        "Verify a data set: compare a folder with the official lists and decode one frame of every video.", True),
    "demo": Verb("demo:demo", "studies",
        "Train V-SimCLR with and without BOD-VCL on synthetic videos in minutes, and compare what each learns.", True),
    "study confounding": Verb("studies:confounding", "studies",
        "Reproduce the confounded-factor study: what one contrastive loss misses and two losses recover.", True),
    "study sweep": Verb("studies:sweep", "studies",
        "Train and probe a recipe over several values of a setting and several seeds.", True),
    "study spectrum": Verb("studies:spectrum", "studies",
        "Check the transfer paper's theorems on projections trained on known covariances.", True),
    "study still-clips": Verb("evaluation:still_clips", "studies",
        "Measure how much of the dynamic component remains when every clip is frozen at its middle frame.", True),
    "study transfer": Verb("studies:transfer", "studies",
        "Compare transfer variants on a tiny image transformer and synthetic sequences with known masks.", True),
    "study order-debug": Verb("studies:order_debug", "studies",
        "Train small encoders on synthetic videos and run the temporal-order test on them.", True),
}
# fmt: on
VERBS: Registry[Verb | Callable[..., Any]] = Registry("verb", "verbs", dict(_ROWS))
