"""Plans of the verbs that copy videos; each has the options of its verb."""

from stillmotion.amounts import Row
from stillmotion.data import prepare as copies
from stillmotion.data.controlled import Controlled, make_controlled
from stillmotion.data.cost import rows
from stillmotion.data.prepare import Prepare
from stillmotion.data.videos import Located, Videos
from stillmotion.data.whole import open_whole
from stillmotion.files import spare


def prepare(out: str, videos: Videos, settings: Prepare, processes: int, strict: bool) -> list[Row]:
    spare(out, videos.places())
    found = open_whole(videos) if settings.form == "shards" and videos.split is None else videos.open()
    return rows(found, out, settings, copies.prepare, processes=processes)


def controlled_make(out: str, videos: Located, settings: Controlled, processes: int, strict: bool) -> list[Row]:
    spare(out, videos.places())
    return rows(open_whole(videos), out, settings, make_controlled, processes=processes)
