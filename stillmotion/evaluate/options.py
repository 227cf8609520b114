"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import arg

from stillmotion.errors import StillmotionError
from stillmotion.options import DataPath, Kind, Split

Protocol = Literal["split", "leave-one-out"]
Among = Literal["test", "all"]
Looked = Literal["test", "train", "all"]
Metric = Literal["euclidean", "cosine"]
Sought = Literal[Kind, "look"]
LEAST_FRAMES = 3  # of a sequence: the first is given, and the last of DAVIS does not count


class _Checked:
    """Options whose values are among their choices."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            several = get_origin(hint) is tuple
            choices: Any = get_args(hint)[0] if several or _may_be_none(hint) else hint
            for one in value if several else () if value is None else (value,):
                if get_origin(choices) is Literal and one not in get_args(choices):
                    raise StillmotionError(f"{name} is {one!r}; choose one of {', '.join(get_args(choices))}")


def _may_be_none(hint: Any) -> bool:
    return get_args(hint)[1:] == (type(None),)


@dataclass(frozen=True)
class Probing(_Checked):
    """How a probe is made.

    Attributes:
        preset: small is logistic regression on 4 clips; k400 the Kinetics protocol: SGD on a new random clip of each
            training video in each of 60 epochs, tested on 10 clips × 3 crops; k400-3 the same, tested on 3 clips.
        clips: evenly spaced, of each (k400: test) video, in place of the preset's, or of 1 whose frames are spread
            over the video.
        sgd_batch: of k400, training clips of a step over all processes; the rate is 0.5 for each 64.
        cache: a folder for features: the same evenly spaced clips in every epoch, each embedded once. All features are
            then held in memory.
        precision: of the frozen network, by autocast; fp32 is none.
        untrained: the network that the run started from, beside it.
    """

    preset: Literal["small", "k400", "k400-3"] = "small"
    clips: int | None = None
    sgd_batch: int = 64
    cache: str | None = None
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    untrained: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sgd_batch < 1:
            raise StillmotionError(f"sgd_batch is {self.sgd_batch}; a step takes at least 1 clip")
        if self.preset == "small" and self.sgd_batch != 64:
            raise StillmotionError(f"--sgd-batch {self.sgd_batch} is of the preset k400; small takes no steps")


@dataclass(frozen=True)
class Retrieval(_Checked):
    """What is asked of which videos.

    Attributes:
        protocol: split asks test videos among training videos; leave-one-out each video among the others.
        among: the videos of leave-one-out.
        clips: evenly spaced clips of each video, averaged; by default 10, or 1 whose frames are spread over the video.
        cache: a folder for the features, in place of the run's own.
    """

    protocol: Protocol = "split"
    among: Among = "test"
    clips: int | None = None
    cache: str | None = None


@dataclass(frozen=True)
class Clustering(_Checked):
    """What is looked at.

    Attributes:
        by: kinds of embedding.
        split: whose videos are looked at; classes are ranked by retrieval of test videos among training videos.
        metric: of silhouette scores and maps; the paper does not say its own.
        clips: evenly spaced clips of each video, averaged; by default 10, or 1 whose frames are spread over the video.
        cache: a folder for the features, in place of the run's own.
    """

    by: tuple[Kind, ...] = ("whole", "static", "dynamic", "motion")
    split: Looked = "test"
    metric: Metric = "euclidean"
    clips: int | None = None
    cache: str | None = None


@dataclass(frozen=True)
class Searching(_Checked):
    """What is found.

    Attributes:
        by: motion finds what moves alike, look what looks alike; without an index also whole (its default), static
            (which is the look), dynamic (what changes of a frame's mean feature) and both.
        mix: of look and motion, in place of --by: 0 is look alone, 1 motion alone; an index is asked at 0.5.
        top: how many to find.
        start: of the moment of the query that is meant, in seconds.
        end: of that moment.
        clips: evenly spaced clips of each video, averaged; by default 10, or 1 whose frames are spread over the video.
        cache: a folder for the features, in place of the run's own; the query's are not kept. Without an index.
    """

    by: Sought | None = None
    mix: float | None = None
    top: int = 10
    start: Annotated[float | None, arg(name="from")] = None
    end: Annotated[float | None, arg(name="to")] = None
    clips: int | None = None
    cache: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top < 1:
            raise StillmotionError(f"top is {self.top}; ask for at least 1")
        if self.by is not None and self.mix is not None:
            raise StillmotionError(f"--by {self.by} and --mix {self.mix:g} are both given; choose one")
        if self.mix is not None and not 0 <= self.mix <= 1:
            raise StillmotionError(f"mix is {self.mix:g}; it lies between 0, by look, and 1, by motion")


@dataclass(frozen=True)
class Comparing(_Checked):
    """What all probes of a comparison share.

    Attributes:
        clips: evenly spaced, of each video.
        by: kinds of embedding; both is static ⊕ dynamic. Tables take the first.
        level: of the confidence intervals.
        resamples: of the test videos, for the intervals.
    """

    clips: int = 4
    by: tuple[Kind, ...] = ("whole",)
    level: float = 0.95
    resamples: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.by:
            raise StillmotionError("no kind of embedding is asked; give one or more by --by")


@dataclass(frozen=True)
class Geometry(_Checked):
    """What is measured of videos, and how.

    Attributes:
        convention: of distances; equations takes patches of the same place, as printed (Eq. 47-53), authors as in
            their script: within a video the closest half of nearest patches, and radii over patches.
        videos: at most so many, drawn at random.
        frames: of each video, evenly spaced; 7, an odd number, or the authors' 40, less 3 at either end.
        size: pixels a side, in place of the run's.
        gamma: γ of the margin D_inter - γ·D_intra; estimate takes it from all rows (Eq. 54).
        temperature: of the affinities.
        resamples: of the bootstrap.
        seed: of the videos that are drawn, and of the bootstrap.
    """

    convention: Literal["equations", "authors"] = "equations"
    videos: int = 1000
    frames: int | None = None
    size: int | None = None
    gamma: float | Literal["estimate"] = 0.3
    temperature: float = 0.03
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = self.taken()
        if self.convention == "authors" and taken < 8:
            raise StillmotionError(
                f"{taken} frames of a video, less 3 at either end by the authors; raise --frames to 8 or more"
            )
        if self.convention == "equations" and (taken < 3 or taken % 2 == 0):
            raise StillmotionError(
                f"{taken} frames of a video; choose an odd number from 3 on, so that one is the middle"
            )

    def taken(self) -> int:
        """How many frames of each video."""
        return self.frames if self.frames is not None else 7 if self.convention == "equations" else 40


@dataclass(frozen=True)
class Sequences:
    """Videos whose first frame is labelled.

    Attributes:
        path: the set's folder as it is published; for points, videos beside <name>_keypoints.npz.
        layout: which set it is.
        resolution: of DAVIS, the folder under JPEGImages.
        split: the name of DAVIS's or VIP's list, the number of JHMDB's split, or a file of its frames and joints.
        only: these sequences.
        frames: only the first so many of each sequence.
    """

    path: DataPath = ""
    layout: Literal["davis", "vip", "jhmdb", "points"] = "davis"
    resolution: str = "480p"
    split: Split = None
    only: tuple[str, ...] = ()
    frames: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))  # a pathlib.Path is welcome
        if self.frames is not None and self.frames < LEAST_FRAMES:
            raise StillmotionError(f"{self.frames} frames asked for; raise --frames to at least {LEAST_FRAMES}")


@dataclass(frozen=True)
class Carrying:
    """By which protocol labels are carried on.

    Attributes:
        preset: whose protocol: matches, context, radius, temperature and frame size.
        layer: take features after this block of a transformer, or stage of a backbone; the last if left out.
        size: height×width of frames such as 480x880, in place of the preset's, which enlarges only jhmdb and points.
    """

    preset: Literal["image-to-video", "dino", "videowalk"] = "image-to-video"
    layer: int | None = None
    size: str | None = None

    def __post_init__(self) -> None:
        self.pixels()

    def of(self, encoder: str) -> str:
        """The text of an encoder, with the layer behind it."""
        return encoder if self.layer is None else f"{encoder}{',' if '@' in encoder else '@'}layer={self.layer}"

    def pixels(self) -> tuple[int, int] | None:
        """Height and width, where they are given."""
        if self.size is None:
            return None
        height, _, width = self.size.replace("×", "x").partition("x")
        if not (height.isdigit() and width.isdigit() and int(height) and int(width)):
            raise StillmotionError(f"size is {self.size!r}; write height and width, such as 480x880")
        return int(height), int(width)
