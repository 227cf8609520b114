"""What makes a page readable without a network."""

import re


def assert_self_contained(html: str) -> None:
    """Nothing on the page is fetched: every source and link is data, or a place on the page itself."""
    assert "http://" not in html
    assert "https://" not in html
    assert "<script " not in html  # with a source, that is; the page's own stands within it
    assert "<link" not in html
    assert "@import" not in html
    for target in re.findall(r'(?:src|href)="([^"]*)"', html):
        assert target.startswith(("#", "data:image/", "data:video/"))
