"""Checks of HTML pages."""

import re


def assert_self_contained(html: str) -> None:
    """Assert that a page fetches nothing: every source and link is a data URI or an anchor of the page."""
    assert "http://" not in html
    assert "https://" not in html
    assert "<script " not in html  # inline scripts have no attributes
    assert "<link" not in html
    assert "@import" not in html
    for target in re.findall(r'(?:src|href)="([^"]*)"', html):
        assert target.startswith(("#", "data:image/", "data:video/"))
