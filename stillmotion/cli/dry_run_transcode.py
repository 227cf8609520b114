"""Plans of the verbs that copy videos; each has the options of its verb."""

from stillmotion.data.datasets.config import VideoDataConfig, VideoSource
from stillmotion.data.datasets.splits import open_all_splits
from stillmotion.data.transcode import prepare as copies
from stillmotion.data.transcode.prepare import PrepareConfig
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig, make_static_dynamic_set
from stillmotion.planning.transcode_estimate import estimate_transcode
from stillmotion.utils.files import check_no_overlap
from stillmotion.utils.formatting import LabelValue


def prepare(
    out: str, videos: VideoDataConfig, settings: PrepareConfig, num_processes: int, strict: bool
) -> list[LabelValue]:
    check_no_overlap(out, videos.input_paths())
    found = open_all_splits(videos) if settings.format == "shards" and videos.split is None else videos.open()
    return estimate_transcode(found, out, settings, copies.prepare_dataset, num_processes=num_processes)


def static_dynamic_make(
    out: str, videos: VideoSource, settings: StaticDynamicSetConfig, num_processes: int, strict: bool
) -> list[LabelValue]:
    check_no_overlap(out, videos.input_paths())
    return estimate_transcode(
        open_all_splits(videos), out, settings, make_static_dynamic_set, num_processes=num_processes
    )
