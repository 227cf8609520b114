"""What a kind of encoder is: how its texts are recognised, and how it is loaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillmotion.encoders.encoder import Encoder
from stillmotion.errors import StillmotionError

NAMES = ("recipe", "flow")  # kinds whose texts are no paths


def _nothing(text: str) -> Encoder:
    raise StillmotionError(f"{text} is not looked up from here")


@dataclass(frozen=True)
class Named:
    """What a text names: an encoder of this kind, at a path (of a recipe, its name), with the options behind the @.

    load: another encoder by its text, for those that began with one.
    """

    kind: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    load: Callable[[str], Encoder] = field(default=_nothing, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text that names it from any folder."""
        place = Path(self.path)
        found = str(place.resolve()) if place.exists() and self.kind not in NAMES else self.path
        return (f"{self.kind}:" if place.is_file() else "") + found + (f"@{self.behind}" if self.options else "")

    @property
    def behind(self) -> str:
        """The options as they are written behind an @."""
        return ",".join(f"{name}={value}" for name, value in self.options.items())

    def without(self, *options: str) -> "Named":
        """Itself; an error where it has an option that its kind does not take."""
        for name in options:
            if name in self.options:
                raise StillmotionError(f"{self.path} has no option {name!r}; it is for transformers models")
        return self


@dataclass(frozen=True)
class EncoderKind:
    """A kind of encoder.

    what: in words, for messages and help. knows: whether a path, or a recipe's name, is one of its.
    load: the encoder; frames, stride and size are changed by whoever asks for it.
    A text may say its kind in front, as in i3d:<file>.
    """

    what: str
    knows: Callable[[str], bool]
    load: Callable[[Named], Encoder]
