"""The page in a real browser, over an index of synthetic videos."""

import http.client
import re
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import uvicorn
from support.browser import launch_browser, needs_browser, new_page, wait_for
from support.fake_index import FakeIndex, encode_red_circling

from stillmotion.browse.app import create_app

pytestmark = [needs_browser, pytest.mark.slow]

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
REDUCED_MOTION = {"reduced_motion": "reduce"}
CARDS = "#grid-view a.card"
PAGE_FITS = "document.documentElement.scrollWidth <= innerWidth"
DROP_FILE = """
(bytes) => {
  const files = new DataTransfer();
  files.items.add(new File([new Uint8Array(bytes)], "mine.mp4", { type: "video/mp4" }));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: files, bubbles: true, cancelable: true }));
    if (kind === "dragover") window.overlayShown = document.getElementById("drop-overlay").checkVisibility();
  }
}
"""


@contextmanager
def serve_index(index):
    """Serve the page of an index; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        page = create_app(index, "token", embed_upload=encode_red_circling)
        server = uvicorn.Server(uvicorn.Config(page, lifespan="off", log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/token/"
        finally:
            server.should_exit = True
            thread.join(60)


@pytest.fixture(scope="module")
def browser():
    with launch_browser() as instance:
        yield instance


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return FakeIndex(tmp_path_factory.mktemp("drawn"), num_videos=24, image_size=64, num_frames=12)


@pytest.fixture(scope="module")
def address(index):
    with serve_index(index) as url:
        yield url


def card_paths(page, selector):
    """The paths of the segments in a list."""
    page.wait_for_selector(f"{selector} a.card")
    labels = page.locator(f"{selector} a.card").evaluate_all("cards => cards.map(card => card.ariaLabel)")
    return [label.split(",")[0] for label in labels]


def test_grid_segment_view_results_and_slider(browser, address, index):
    with new_page(browser, server=address) as (page, errors):
        page.goto(address)
        assert card_paths(page, "#grid-view") == [segment.path for segment in index.segments()]
        wait_for(page, "[...document.querySelectorAll('#grid-view img')].slice(0, 6).every(i => i.naturalWidth > 0)")
        assert page.locator("#count").text_content() == "24 segments"
        assert page.locator("#failed").text_content() == "1 file could not be read"
        assert page.locator("#grid-view .label").first.is_visible()
        assert page.title() == "videos – stillmotion"

        page.locator(CARDS).first.click()
        first = index.segments()[0]
        assert card_paths(page, "#appearance") == [
            result.segment.path for result in index.neighbors(first.id, motion_weight=0)
        ]
        assert card_paths(page, "#motion") == [
            result.segment.path for result in index.neighbors(first.id, motion_weight=1)
        ]
        assert card_paths(page, "#mixed") == [
            result.segment.path for result in index.neighbors(first.id, motion_weight=0.5, top_k=8)
        ]
        wait_for(page, "document.querySelector('#stage video')?.currentTime > 0")  # it plays
        assert page.locator("#title").text_content() == first.path.split("/")[1]

        for value, mix in (("100", 1), ("0", 0)):
            page.locator("#mix").fill(value)
            expected = [result.segment.id for result in index.neighbors(first.id, motion_weight=mix, top_k=8)]
            wait_for(
                page,
                "ids => [...document.querySelectorAll('#mixed a')].map(a => a.hash.slice(10)).join() === ids.join()",
                expected,
            )
        page.keyboard.press("Escape")
        page.wait_for_selector(CARDS)
        assert errors == []


def test_keyboard_shortcuts(browser, address, index):
    with new_page(browser, server=address) as (page, errors):
        page.goto(address)
        page.wait_for_selector(CARDS)
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        position = page.locator(CARDS).evaluate_all("cards => cards.indexOf(document.activeElement)")
        columns = page.locator(CARDS).evaluate_all("cards => cards.filter(c => c.style.top === '0px').length")
        assert position == 1 + columns
        page.keyboard.press("Enter")
        page.wait_for_selector("#appearance a.card")
        assert page.locator("#title").text_content() == index.segments()[position].path.split("/")[1]
        page.keyboard.press("Escape")
        page.wait_for_selector(CARDS)
        page.keyboard.press("/")
        page.keyboard.type("zooming")
        wait_for(page, "document.querySelector('#count').textContent !== '24 segments'")
        assert all("zooming" in name for name in card_paths(page, "#grid-view"))
        page.keyboard.press("Escape")
        wait_for(page, "document.querySelector('#count').textContent === '24 segments'")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        page.locator("dialog").wait_for(state="visible")
        assert "1 file could not be read:broken.mp4" in page.locator("#facts").text_content()
        page.keyboard.press("Escape")
        page.locator("dialog").wait_for(state="hidden")  # the dialog takes all keys until then
        wait_for(page, "!document.activeElement.closest('dialog')")
        page.keyboard.press("t")
        wait_for(page, "document.documentElement.dataset.theme === 'dark'")
        assert errors == []


def test_a_dropped_video_is_a_query_also_after_a_reload(browser, address, index):
    content = list(index.video_path(index.segments()[0].id).read_bytes())
    with new_page(browser, server=address) as (page, errors):
        page.goto(address)
        page.wait_for_selector(CARDS)
        page.evaluate(DROP_FILE, content)
        assert page.evaluate("window.overlayShown")
        assert "circling" in card_paths(page, "#motion")[0]
        assert "red" in card_paths(page, "#appearance")[0]
        assert page.locator("#title").text_content() == "mine.mp4"
        wait_for(page, "document.querySelector('#stage video')?.videoWidth > 0")
        page.reload()
        assert "circling" in card_paths(page, "#motion")[0]
        assert "The page was reloaded" in page.locator("#stage").text_content()
        assert errors == []
        page.evaluate(DROP_FILE, [1, 2, 3])
        wait_for(page, "document.querySelector('#toast').textContent.startsWith('mine.mp4: cannot be decoded')")
        assert [error for error in errors if "422" not in error] == []


def test_bars_show_percentiles_and_a_line_separates_chance(browser, address, index):
    first = index.segments()[0].id
    results = index.neighbors(first, motion_weight=1)
    with new_page(browser, server=address) as (page, errors):
        page.goto(f"{address}#/segment/{first}")
        card_paths(page, "#motion")
        widths = page.locator("#motion .bars .motion i").evaluate_all("bars => bars.map(bar => bar.style.width)")
        expected = [result.motion_percentile for result in results]
        assert [float(width.rstrip("%")) for width in widths] == pytest.approx(expected, abs=0.01)
        tags = page.locator("#motion > *").evaluate_all("elements => elements.map(element => element.tagName)")
        assert tags.index("P") == sum("motion" in result.close_by for result in results)
        assert errors == []


def test_map_and_named_group(browser, address, index):
    with new_page(browser, server=address) as (page, errors):
        page.goto(f"{address}#/map")
        page.wait_for_selector("#groups li", timeout=60_000)
        wait_for(
            page,
            "[...document.querySelectorAll('canvas')].every("
            "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(value => value))",
        )
        name = page.locator("#groups input").first
        name.fill("to and fro")
        name.press("Enter")
        wait_for(page, "document.querySelector('#toast').textContent.includes('to and fro')")
        page.reload()
        page.wait_for_selector("#groups li", timeout=60_000)
        assert page.locator("#groups input").first.input_value() == "to and fro"
        page.locator("#groups a").first.click()
        page.wait_for_selector("#clear-group:not([hidden])")
        paths = card_paths(page, "#grid-view")
        assert 0 < len(paths) < len(index)
        assert len({re.split("[/-]", path)[1] for path in paths}) == 1  # the groups are the trajectories
        assert "to and fro" in page.locator("#clear-group").text_content()
        page.locator("#clear-group").click()
        wait_for(page, "document.querySelector('#count').textContent === '24 segments'")

        page.goto(f"{address}#/map")
        page.locator("canvas").first.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#tooltip img")
        page.keyboard.press("Enter")
        page.wait_for_selector("#appearance a.card")
        assert page.locator("#tooltip").is_hidden()
        assert errors == []


def test_a_click_on_a_point_of_the_map_opens_it(browser, address):
    with new_page(browser, server=address) as (page, errors):
        page.goto(f"{address}#/map")
        page.wait_for_selector("#groups li", timeout=60_000)
        box = page.locator("#plane-motion").bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + 5)
        for step in range(1, 400):  # until a segment is under the pointer
            page.mouse.move(box["x"] + box["width"] * (step * 0.618 % 1), box["y"] + box["height"] * step / 400)
            if page.locator("#tooltip").is_visible():
                break
        page.mouse.down()
        page.mouse.up()
        page.wait_for_selector("#appearance a.card")
        assert errors == []


def test_a_wrong_token_shows_nothing(browser, address):
    with new_page(browser, server=address) as (page, _):
        assert page.goto(address.replace("/token/", "/tokem/")).status == 403
        assert page.locator("a.card").count() == 0


def test_paths_outside_the_index_are_refused(address):
    for path in ("videos/../../../etc/passwd", "videos//etc/passwd", "../etc/passwd", "static/../app.py"):
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)  # sends a path as it is
        connection.request("GET", f"/token/{path}")
        assert connection.getresponse().status == 404, path
        connection.close()


def test_missing_and_unplayable_videos(browser, tmp_path):
    index = FakeIndex(tmp_path, num_videos=3, image_size=32, num_frames=8)
    deleted, unplayable = index.segments()[:2]
    index.video_path(deleted.id).unlink()
    avi_path = index.video_path(unplayable.id).with_suffix(".avi")
    index.video_path(unplayable.id).rename(avi_path)
    video_path = index.video_path
    index.video_path = lambda id: avi_path if id == unplayable.id else video_path(id)
    with serve_index(index) as address, new_page(browser, server=address) as (page, errors):
        page.goto(f"{address}#/segment/{deleted.id}")
        page.wait_for_selector("#stage .note")
        assert "no longer exists" in page.locator("#stage").text_content()
        wait_for(page, "document.querySelector('#stage img').naturalWidth > 0")
        assert card_paths(page, "#appearance")
        page.goto(f"{address}#/segment/{unplayable.id}")
        wait_for(page, "document.querySelector('#stage video')?.src.startsWith('blob:')")
        wait_for(page, "document.querySelector('#stage video').videoWidth > 0")
        assert errors == []


def test_thumbnails_are_still_with_reduced_motion(browser, address):
    with new_page(browser, server=address, **REDUCED_MOTION) as (page, errors):
        page.goto(address)
        page.wait_for_selector(f"{CARDS} img")
        sources = "images => images.map(image => image.getAttribute('src').split('/')[0])"
        assert set(page.locator(f"{CARDS} img").evaluate_all(sources)) == {"posters"}
        page.locator(CARDS).nth(3).hover()
        assert page.locator(f"{CARDS} img").evaluate_all(sources).count("thumbnails") == 1
        page.keyboard.press("p")
        assert set(page.locator(f"{CARDS} img").evaluate_all(sources)) == {"thumbnails"}
        assert errors == []


def test_the_page_fits_a_phone(browser, address):
    with new_page(browser, server=address, **PHONE) as (page, errors):
        page.goto(address)
        page.wait_for_selector(CARDS)
        assert page.evaluate(PAGE_FITS)
        page.locator(CARDS).first.tap()
        card_paths(page, "#motion")
        assert page.evaluate(PAGE_FITS)
        page.goto(f"{address}#/map")
        page.wait_for_selector("#groups li", timeout=60_000)
        assert page.evaluate(PAGE_FITS)
        assert errors == []


def test_only_segments_in_view_are_in_the_page(browser, tmp_path):
    index = FakeIndex(tmp_path, num_videos=1, image_size=16, num_frames=2)
    (only,) = index.segments()
    index._segments = [replace(only, id=f"m{i:05}", path=f"{i:05}.mp4") for i in range(10_000)]
    index.segment = lambda id: index._segments[int(id[1:])]
    content = index.thumbnail(only.id)
    index.thumbnail = lambda id: content
    with serve_index(index) as address, new_page(browser, server=address) as (page, errors):
        page.goto(address)
        page.wait_for_selector(CARDS)
        assert page.locator("#count").text_content() == "10,000 segments"
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_selector("a.card[href='#/segment/m09999']")
        assert page.locator(CARDS).count() < 400
        assert errors == []


def test_a_folder_of_one_video(browser, tmp_path):
    index = FakeIndex(tmp_path, num_videos=1, image_size=32, num_frames=8)
    with serve_index(index) as address, new_page(browser, server=address) as (page, errors):
        page.goto(address)
        page.locator(CARDS).first.click()
        wait_for(page, "document.querySelector('#appearance').textContent.includes('nothing else')")
        page.goto(f"{address}#/map")
        page.wait_for_selector("#groups li", timeout=60_000)
        assert errors == []
