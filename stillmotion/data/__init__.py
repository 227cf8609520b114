"""Reading, sampling, augmenting, loading and transcoding videos."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.data.datasets.base import VideoDataset as VideoDataset
    from stillmotion.data.datasets.folder import VideoFolder as VideoFolder
    from stillmotion.data.loading.torch_dataset import ClipDataset as ClipDataset
    from stillmotion.data.synthetic.factors import SyntheticConfig as SyntheticConfig
    from stillmotion.data.synthetic.factors import SyntheticDataset as SyntheticDataset
    from stillmotion.data.video import open_video as open_video
    from stillmotion.data.video.reader import VideoReader as VideoReader

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "datasets.base": ("VideoDataset",),
        "datasets.folder": ("VideoFolder",),
        "loading.torch_dataset": ("ClipDataset",),
        "synthetic.factors": ("SyntheticConfig", "SyntheticDataset"),
        "video": ("open_video",),
        "video.reader": ("VideoReader",),
    },
)
