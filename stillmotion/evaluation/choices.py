"""Option dataclasses whose values must be among their choices."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

from stillmotion.errors import StillmotionError


class ChoiceValidated:
    """Base of option dataclasses; raises StillmotionError for a value that is not among its Literal choices."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            is_tuple = get_origin(hint) is tuple
            choices: Any = get_args(hint)[0] if is_tuple or _is_optional(hint) else hint
            for item in value if is_tuple else () if value is None else (value,):
                if get_origin(choices) is Literal and item not in get_args(choices):
                    raise StillmotionError(f"{name} is {item!r}; choose one of {', '.join(get_args(choices))}")


def _is_optional(hint: Any) -> bool:
    return get_args(hint)[1:] == (type(None),)
