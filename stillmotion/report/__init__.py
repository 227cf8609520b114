"""Self-contained HTML pages: blocks, the page writer, plots and images. Imports nothing of training or evaluation."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.report.blocks import Code as Code
    from stillmotion.report.blocks import Figures as Figures
    from stillmotion.report.blocks import ImageBlock as ImageBlock
    from stillmotion.report.blocks import Neighbors as Neighbors
    from stillmotion.report.blocks import Section as Section
    from stillmotion.report.blocks import Table as Table
    from stillmotion.report.blocks import Text as Text
    from stillmotion.report.blocks import Thumbnail as Thumbnail
    from stillmotion.report.blocks import Thumbnails as Thumbnails
    from stillmotion.report.blocks import VideoBlock as VideoBlock
    from stillmotion.report.blocks import figure_block as figure_block
    from stillmotion.report.page import write_page as write_page

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "blocks": (
            *("Code", "Figures", "ImageBlock", "Neighbors", "Section", "Table", "Text", "Thumbnail", "Thumbnails"),
            *("VideoBlock", "figure_block"),
        ),
        "page": ("write_page",),
    },
)
