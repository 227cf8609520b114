from stillmotion.data.datasets.base import VideoDataset as VideoDataset
from stillmotion.data.datasets.folder import VideoFolder as VideoFolder
from stillmotion.data.loading.torch_dataset import ClipDataset as ClipDataset
from stillmotion.data.synthetic.factors import SyntheticConfig as SyntheticConfig
from stillmotion.data.synthetic.factors import SyntheticDataset as SyntheticDataset
from stillmotion.data.video import open_video as open_video
from stillmotion.data.video.reader import VideoReader as VideoReader
