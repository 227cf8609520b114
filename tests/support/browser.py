"""Pages in headless Chromium by Playwright, with every error and every request to another host recorded."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_EXECUTABLES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CHROMIUM_ARGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--mute-audio", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"),
]
_LOCAL_SCHEMES = ("data:", "file:", "about:", "blob:")


def find_chromium() -> str | None:
    """Return the path of Chromium, or None."""
    return next((path for name in _EXECUTABLES if (path := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(
    find_chromium() is None, reason="no chromium here: apt-get install chromium lets this test open pages in a browser"
)


@contextmanager
def launch_browser() -> Iterator[Any]:
    """Launch a headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=_CHROMIUM_ARGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def new_page(browser: Any, *, server: str = "file:", **options: Any) -> Iterator[tuple[Any, list[str]]]:
    """Open an empty page with a new profile; yields it and a list of its errors and of requests to other hosts."""
    errors: list[str] = []
    context = browser.new_context(**options)
    page = context.new_page()
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "assert") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "request", lambda r: None if r.url.startswith((*_LOCAL_SCHEMES, server)) else errors.append(f"fetched {r.url}")
    )
    try:
        yield page, errors
    finally:
        context.close()


def wait_for(page: Any, expression: str, argument: Any = None) -> None:
    """Wait until an expression is true. Playwright's own wait evaluates text, which strict pages refuse."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)
