"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

from stillmotion.errors import StillmotionError


class ChoiceValidated:
    """Options whose values are among their choices."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            several = get_origin(hint) is tuple
            choices: Any = get_args(hint)[0] if several or _is_optional(hint) else hint
            for one in value if several else () if value is None else (value,):
                if get_origin(choices) is Literal and one not in get_args(choices):
                    raise StillmotionError(f"{name} is {one!r}; choose one of {', '.join(get_args(choices))}")


def _is_optional(hint: Any) -> bool:
    return get_args(hint)[1:] == (type(None),)
