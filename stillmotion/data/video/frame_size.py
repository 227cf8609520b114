"""Size of a frame whose shorter side is resized."""

from collections.abc import Sequence


def short_side_size(
    size: Sequence[int], short_side: int | None, *, enlarge: bool = True, multiple_of: int = 1
) -> tuple[int, int]:
    """Height and width of an image after its shorter side is resized.

    Args:
        size: Height and width of the image.
        short_side: New length of the shorter side; None keeps the size.
        enlarge: False keeps the size of smaller images.
        multiple_of: Round both sides to a multiple of this number.

    Example:
        >>> short_side_size((240, 320), 112)
        (112, 149)
        >>> short_side_size((240, 320), 112, multiple_of=2)
        (112, 150)
        >>> short_side_size((60, 80), 112, enlarge=False)
        (60, 80)
    """
    scale = 1.0 if short_side is None else short_side / min(size)
    scale = scale if enlarge else min(1.0, scale)
    height, width = (multiple_of * max(1, round(side * scale / multiple_of)) for side in size)
    return height, width
