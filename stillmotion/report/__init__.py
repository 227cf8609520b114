"""Self-contained HTML pages: blocks, the page writer, plots and images. Imports nothing of training or evaluation."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.report.page import write_page as write_page
    from stillmotion.report.page_blocks import Code as Code
    from stillmotion.report.page_blocks import Figures as Figures
    from stillmotion.report.page_blocks import ImageBlock as ImageBlock
    from stillmotion.report.page_blocks import Neighbors as Neighbors
    from stillmotion.report.page_blocks import Section as Section
    from stillmotion.report.page_blocks import Table as Table
    from stillmotion.report.page_blocks import Text as Text
    from stillmotion.report.page_blocks import Thumbnail as Thumbnail
    from stillmotion.report.page_blocks import Thumbnails as Thumbnails
    from stillmotion.report.page_blocks import VideoBlock as VideoBlock
    from stillmotion.report.page_blocks import figure_block as figure_block

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "page_blocks": (
            *("Code", "Figures", "ImageBlock", "Neighbors", "Section", "Table", "Text", "Thumbnail", "Thumbnails"),
            *("VideoBlock", "figure_block"),
        ),
        "page": ("write_page",),
    },
)
