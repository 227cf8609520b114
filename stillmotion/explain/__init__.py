"""Visualizations of an encoder: Koopman modes, temporal similarity, Grad-CAM and saliency tubes."""

from stillmotion.utils.lazy_exports import lazy_exports

# Not `explain_videos`: the module has the name of its function.
__getattr__, __all__ = lazy_exports(__name__, __file__)
