"""Self-supervised methods: objectives, views, the static/dynamic decomposition, and image-to-video transfer."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.methods.embedding_network import EmbeddingNetwork as EmbeddingNetwork
    from stillmotion.methods.embedding_network import ModelConfig as ModelConfig
    from stillmotion.methods.method import Method as Method
    from stillmotion.methods.method import MethodConfig as MethodConfig
    from stillmotion.methods.objective import OBJECTIVES as OBJECTIVES
    from stillmotion.methods.objective import Objective as Objective
    from stillmotion.methods.objective import ObjectiveConfig as ObjectiveConfig
    from stillmotion.methods.static_dynamic import StaticDynamicConfig as StaticDynamicConfig
    from stillmotion.methods.views import TemporalViews as TemporalViews
    from stillmotion.methods.views import ViewsConfig as ViewsConfig

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "method": ("Method", "MethodConfig"),
        "embedding_network": ("EmbeddingNetwork", "ModelConfig"),
        "objective": ("OBJECTIVES", "Objective", "ObjectiveConfig"),
        "static_dynamic": ("StaticDynamicConfig",),
        "views": ("TemporalViews", "ViewsConfig"),
    },
)
