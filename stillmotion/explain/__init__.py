"""Visualizations of an encoder: Koopman modes, temporal similarity, Grad-CAM and saliency tubes."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.explain.class_saliency import explain_class as explain_class
    from stillmotion.explain.clip_analysis import analyze_clip as analyze_clip
    from stillmotion.explain.config import SaliencyTarget as SaliencyTarget
    from stillmotion.explain.explain_videos import explain_videos as explain_videos
    from stillmotion.explain.koopman_modes import KoopmanModes as KoopmanModes
    from stillmotion.explain.saliency import grad_cam as grad_cam
    from stillmotion.explain.saliency import saliency_tube as saliency_tube

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "class_saliency": ("explain_class",),
        "clip_analysis": ("analyze_clip",),
        "config": ("SaliencyTarget",),
        # `koopman_modes` and `explain_videos` are modules too; the function of the latter is found in it.
        "koopman_modes": ("KoopmanModes",),
        "saliency": ("grad_cam", "saliency_tube"),
    },
)
