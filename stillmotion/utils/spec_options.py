"""Options at the end of a spec string, as in `runs/mine@frames=16,size=112`."""

from pathlib import Path


def split_options(spec: str) -> tuple[str, dict[str, str]]:
    """Split a spec string into its path or name and the options after its last @.

    A path that exists is taken as it is, even if it contains an @.

    Args:
        spec: Spec string.

    Returns:
        The part before the @, and the options by name; an option without a value has the value "".
    """
    path, separator, tail = spec.rpartition("@")
    if not separator or Path(spec).exists():
        return spec, {}
    pairs = (option.partition("=") for option in tail.split(","))
    return path, {name: value for name, _, value in pairs}
