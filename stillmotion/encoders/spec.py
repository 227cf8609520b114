"""What a kind of encoder is: how its texts are recognised, and how it is loaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillmotion.encoders.encoder import Encoder
from stillmotion.errors import StillmotionError

KINDS_WITHOUT_PATH = ("recipe", "flow")  # kinds whose texts are no paths
_OPTION_APPLIES_TO = {
    "pool": "image models and what was transferred from them",
    "layer": "encoders whose features are not projected",
    "epoch": "run folders of pretrain, transfer, finetune and detect",
}


def add_options(spec: str, options: Mapping[str, Any]) -> str:
    """A text with more options behind its @; the last of two of the same name counts."""
    if not options:
        return spec
    mark = "," if "@" in spec and not Path(spec).exists() else "@"
    return spec + mark + ",".join(f"{name}={value}" for name, value in options.items())


def _nothing(spec: str) -> Encoder:
    raise StillmotionError(f"{spec} is not looked up from here")


@dataclass(frozen=True)
class EncoderSpec:
    """What a text names: an encoder of this kind, at a path (of a recipe, its name), with the options behind the @.

    load_other: another encoder by its text, for those that began with one.
    """

    kind: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    load_other: Callable[[str], Encoder] = field(default=_nothing, compare=False, repr=False)

    @property
    def canonical(self) -> str:
        """The text that names it from any folder."""
        place = Path(self.path)
        found = str(place.resolve()) if place.exists() and self.kind not in KINDS_WITHOUT_PATH else self.path
        return (f"{self.kind}:" if place.is_file() else "") + found + (f"@{self.option_string}" if self.options else "")

    @property
    def option_string(self) -> str:
        """The options as they are written behind an @."""
        return ",".join(f"{name}={value}" for name, value in self.options.items())

    def reject_options(self, *names: str) -> "EncoderSpec":
        """Itself; an error where it has an option that its kind does not take."""
        for name in names:
            if name in self.options:
                raise StillmotionError(f"{self.path} has no option {name!r}; it is for {_OPTION_APPLIES_TO[name]}")
        return self


@dataclass(frozen=True)
class EncoderKind:
    """A kind of encoder.

    description: in words, for messages and help. knows: whether a path, or a recipe's name, is one of its.
    load: the encoder; frames, stride and size are changed by whoever asks for it.
    A text may say its kind in front, as in i3d:<file>.
    """

    description: str
    matches: Callable[[str], bool]
    load: Callable[[EncoderSpec], Encoder]
