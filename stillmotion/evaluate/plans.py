"""What the verbs that ask frozen encoders will show them: each is checked as by the verb, and nothing is made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stillmotion.data.halves import Halves, Unlabelled
from stillmotion.data.paths import VideoSet
from stillmotion.data.played import Played
from stillmotion.data.subset import Joined, Stilled
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, clips_of
from stillmotion.encoders.features import Views
from stillmotion.evaluate.cache import USUAL_CLIPS
from stillmotion.evaluate.controlled import SETS, check_asked
from stillmotion.evaluate.cost import Showing, keeping
from stillmotion.evaluate.embed import parts_beside, table
from stillmotion.evaluate.options import Comparing, Probing
from stillmotion.evaluate.order_tasks import open_tasks
from stillmotion.evaluate.outputs import Read, read_by, spare_file, spare_folder
from stillmotion.evaluate.probe import check_one_fold, halves_of, networks_of, rule_of
from stillmotion.evaluate.retrieve import titles
from stillmotion.evaluate.sgd import Sgd
from stillmotion.files import writable


def embedding(encoder: Encoder, videos: Videos, out: str, *, clips: int | None, crops: int) -> Iterator[Showing]:
    """Of `embed`."""
    file = table(out)
    writable(file.parent)
    opened = videos.open(drawn=encoder.drawn, seed=encoder.seed)
    spare_file(file, read_by(videos, videos=opened, encoders=[encoder]))
    views = Views(clips=clips_of(encoder, clips, usual=4), crops=crops, average=True)
    yield Showing(what=encoder.name, encoder=encoder, videos=opened, views=views, kept=parts_beside(file))


def comparison(
    encoders: Sequence[Encoder], halves: Halves, *, clips: int | None, cache: str | None, out: str | None = None
) -> Iterator[Showing]:
    """Of `retrieve` and `clusters`, with labels or without. out: the folder that is written to, where there is one."""
    for title, encoder in zip(titles(encoders), encoders, strict=True):
        videos: VideoSet
        try:
            videos = halves.open(encoder.drawn).videos
        except Unlabelled:
            videos = halves.part().open()
        read = read_by(halves, videos=videos, encoders=encoders)
        _check_folder(cache, read, option="--cache")
        _check_folder(out, read_by(halves, encoders=encoders))
        views = Views(clips=clips_of(encoder, clips, usual=USUAL_CLIPS), average=True)
        yield keeping(title, encoder, videos, views, cache)


def probing(encoder: Encoder, halves: Halves, asked: Probing) -> Iterator[Showing]:
    """Of `probe`; a random clip takes as long as one in the middle."""
    rule = rule_of(encoder, asked)
    check_one_fold(halves)
    parted = halves.open(encoder.drawn)
    _check_folder(asked.cache, read_by(halves, videos=parted.videos, encoders=[encoder]), option="--cache")
    train, test = parted.halves()
    views, tested = halves_of(rule, asked)
    for name, network in networks_of(encoder, asked).items():
        both = {f"{name}, training videos": (train, views, 1), f"{name}, test videos": (test, tested, 1)}
        if rule.sgd and asked.cache is None:
            both[f"{name}, training videos"] = train, replace(views, clips=1, average=True), Sgd().epochs
        for what, (half, of, times) in both.items():
            if asked.cache is not None:
                yield keeping(what, network, half, of, asked.cache)
            else:
                yield Showing(what=what, encoder=network, videos=half, views=of, times=times)


def ordering(
    encoders: Sequence[Encoder], halves: Halves, *, pairs: str | None, untrained: bool, out: str | None
) -> Iterator[Showing]:
    """Of `order`: a clip and its reverse are two videos."""
    _check_folder(out, read_by(halves, encoders=encoders, also=[pairs]))
    named = dict(zip(titles(encoders), encoders, strict=True))
    asked = open_tasks(halves, pairs=pairs, drawn=encoders[0].drawn)
    for name, encoder in named.items():
        for network in (encoder, encoder.untrained()) if untrained else (encoder,):
            played = Played(asked.videos, frames=network.intake.frames, both=asked.both)
            what = name if network is encoder else f"{name}, untrained"
            yield Showing(what=what, encoder=network.shown(stride=1, fps=0), videos=played, views=Views())


def versions(
    encoders: Mapping[str, Encoder], asked: Mapping[str, Halves], out: str, comparing: Comparing
) -> Iterator[Showing]:
    """Of `controlled evaluate`: each version, and single frames of the dynamic one."""
    check_asked(encoders, asked)
    parted = {name: asked[name].open() for name in SETS if name in asked}
    for name, halves in parted.items():
        _check_folder(out, read_by(asked[name], videos=halves.videos, encoders=encoders.values()))
    for title, encoder in encoders.items():
        sets = {name: (halves.videos, comparing.clips) for name, halves in parted.items()}
        if "dynamic" in parted:
            sets["single frames of the dynamic"] = Joined([Stilled(parted["dynamic"].videos)]), 1
        for name, (videos, clips) in sets.items():
            yield keeping(f"{title}, {name}", encoder, videos, Views(clips=clips), Path(out) / "features")


def _check_folder(folder: str | None, read: Read, *, option: str = "--out") -> None:
    if folder is not None:
        spare_folder(folder, read, option=option)
        writable(folder, option=option)
