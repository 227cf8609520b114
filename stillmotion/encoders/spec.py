"""Encoder specs (`runs/mine@frames=16`) and the kinds of encoders that they name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillmotion.encoders.encoder import Encoder
from stillmotion.errors import StillmotionError

KINDS_WITHOUT_PATH = ("recipe", "flow")  # kinds whose specs are not paths
_OPTION_APPLIES_TO = {
    "pool": "image models and transfer runs",
    "layer": "encoders whose features are not projected",
    "epoch": "run folders of pretrain, transfer, finetune and detect",
}


def add_options(spec: str, options: Mapping[str, Any]) -> str:
    """Add options to a spec; of two options with the same name the last counts.

    Args:
        spec: Spec string.
        options: Options to add.

    Returns:
        The spec with the options after its @.
    """
    if not options:
        return spec
    mark = "," if "@" in spec and not Path(spec).exists() else "@"
    return spec + mark + ",".join(f"{name}={value}" for name, value in options.items())


def _cannot_load(spec: str) -> Encoder:
    raise StillmotionError(f"{spec} cannot be loaded here.")


@dataclass(frozen=True)
class EncoderSpec:
    """A parsed encoder spec.

    Args:
        kind: Kind of encoder, a key of `ENCODER_KINDS`.
        path: Path of its folder or file; name of a recipe or hub model.
        options: Options after the @.
        load_other: Loads another encoder by its spec, for runs that started from one.
    """

    kind: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    load_other: Callable[[str], Encoder] = field(default=_cannot_load, compare=False, repr=False)

    @property
    def canonical(self) -> str:
        """Spec string that is valid from any working folder."""
        path = Path(self.path)
        text = str(path.resolve()) if path.exists() and self.kind not in KINDS_WITHOUT_PATH else self.path
        return (f"{self.kind}:" if path.is_file() else "") + text + (f"@{self.option_string}" if self.options else "")

    @property
    def option_string(self) -> str:
        """Options as they are written after the @."""
        return ",".join(f"{name}={value}" for name, value in self.options.items())

    def reject_options(self, *names: str) -> "EncoderSpec":
        """Return self; raise StillmotionError if the spec has one of these options."""
        for name in names:
            if name in self.options:
                raise StillmotionError(
                    f"Option {name!r} does not apply to {self.path}; it is for {_OPTION_APPLIES_TO[name]}."
                )
        return self


@dataclass(frozen=True)
class EncoderKind:
    """A kind of encoder, which a spec may name before its path, as in `i3d:FILE`.

    Args:
        description: What to give, for error messages and help.
        matches: Whether a path or name is of this kind.
        load: Loads the encoder of a spec; `load` applies the options of its clips afterwards.
    """

    description: str
    matches: Callable[[str], bool]
    load: Callable[[EncoderSpec], Encoder]
