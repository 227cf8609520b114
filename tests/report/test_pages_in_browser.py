"""Report pages in a real browser."""

import pytest
from support.browser import launch_browser, needs_browser, new_page
from support.class_videos import write_class_folders

from stillmotion.encoders import load
from stillmotion.explain.explain_videos import explain_videos
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Section, Table
from stillmotion.training.pretrain.report import write_pretrain_page

pytestmark = [needs_browser, pytest.mark.slow]

ROWS = [["b", "10", "0.5 (0.4–0.6)"], ["a", "9", ""], ["c", "−2", "0.25"]]
COLUMN = "[...document.querySelectorAll('tbody tr')].map(row => row.cells[{}].textContent)"
CLICK = "document.querySelectorAll('th')[{}].click()"
LOADED = """
Promise.all([...document.querySelectorAll("img")].map(async image => {
  image.loading = "eager";
  await image.decode();
  return image.naturalWidth;
}))
"""
PLAYABLE = """
Promise.all([...document.querySelectorAll("video")].map(video => new Promise((done, failed) => {
  if (video.readyState >= 2) done(video.videoWidth);
  video.addEventListener("loadeddata", () => done(video.videoWidth));
  video.addEventListener("error", () => failed(video.error.message));
})))
"""


@pytest.fixture(scope="module")
def browser():
    with launch_browser() as instance:
        yield instance


def test_tables_sort_by_a_click_on_their_heading(browser, tmp_path):
    file = write_page(tmp_path / "page.html", "T", [Section("S", [Table(["name", "count", "score"], ROWS)])])
    with new_page(browser) as (page, errors):
        page.goto(file.resolve().as_uri())
        assert page.evaluate(COLUMN.format(0)) == ["b", "a", "c"]
        page.evaluate(CLICK.format(0))
        assert page.evaluate(COLUMN.format(0)) == ["a", "b", "c"]
        page.evaluate(CLICK.format(1))
        assert page.evaluate(COLUMN.format(1)) == ["−2", "9", "10"]  # sorted as numbers, not as text
        page.evaluate(CLICK.format(1))
        assert page.evaluate(COLUMN.format(1)) == ["10", "9", "−2"]
        headings = "[...document.querySelectorAll('th')].map(head => head.getAttribute('aria-sort'))"
        assert page.evaluate(headings) == ["none", "descending", "none"]
        page.evaluate(CLICK.format(2))
        assert page.evaluate(COLUMN.format(0)) == ["c", "b", "a"]  # empty cells are sorted last
        assert errors == []


def test_the_report_of_an_explained_run_loads_completely(browser, run, tmp_path):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=1, num_frames=14, image_size=24)
    explain_videos(load(run).with_input(stride=1), videos, run / "explain", with_tubes=True)
    with new_page(browser) as (page, errors):
        for file in (write_pretrain_page(run), run / "explain" / "report.html"):
            page.goto(file.resolve().as_uri())
            widths = page.evaluate(LOADED)
            assert widths
            assert min(widths) > 0
            sizes = page.evaluate(PLAYABLE)
            assert len(sizes) == 4  # Grad-CAM and tubes of two videos
            assert min(sizes) > 0
            assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getBBox().width > 0)")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert errors == []


def test_errors_of_a_page_are_recorded(browser, tmp_path):
    file = tmp_path / "bad.html"
    file.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('one'); missing()</script>")
    with new_page(browser) as (page, errors):
        page.goto(file.resolve().as_uri())
        messages = " ".join(errors)
    for word in ("fetched", "one", "missing is not defined"):
        assert word in messages


def test_a_wide_table_and_long_names_are_not_cut_off(browser, tmp_path):
    header = ["encoder", *(f"{version} top-{k} (%)" for version in ("plain", "static", "dynamic") for k in (1, 5))]
    rows = [["/home/someone/models/dinov2-small@frames=16,stride=4,size=224,layer=11", *["50.0 [45.0, 54.0]"] * 6]] * 2
    file = write_page(tmp_path / "page.html", f"Of {rows[0][0]}", [Section("S", [Table(header, rows)])])
    with new_page(browser, viewport={"width": 1200, "height": 900}) as (page, errors):
        page.goto(file.as_uri())
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every(s => s.scrollWidth <= s.clientWidth)")
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert errors == []
