"""Write a self-contained HTML page."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import jinja2

from stillmotion.report.page_blocks import Section
from stillmotion.utils.files import ensure_dir, write_text
from stillmotion.utils.formatting import printable_name


def write_page(path: str | Path, title: str, sections: Sequence[Section], *, reload_seconds: int = 0) -> Path:
    """Write one HTML file that needs no other file and no network.

    Args:
        path: The file; its folder is created.
        title: Title of the page; bytes of names that are not UTF-8 are escaped.
        sections: Its sections.
        reload_seconds: Seconds after which a browser reloads the page; 0 never does.

    Returns:
        The path.
    """
    template = (resources.files("stillmotion.report") / "page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    file = ensure_dir(Path(path).parent) / Path(path).name
    write_text(
        file,
        printable_name(environment.from_string(template).render(title=title, sections=sections, reload=reload_seconds)),
    )
    return file
