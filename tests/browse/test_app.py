"""Responses of the page's server, and what it refuses."""

import asyncio
import errno
import io
import json
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from support.fake_index import FakeIndex, encode_red_circling

from stillmotion.browse.app import create_app
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.data.video import open_video
from stillmotion.data.video.writer import write_mp4

TOKEN = "correct-horse"
LIMIT = 200_000


def client_of(index, encode=encode_red_circling):
    """A client of the index's page, below the token."""
    return TestClient(
        create_app(index, TOKEN, embed_upload=encode, max_upload_bytes=LIMIT),
        base_url=f"http://127.0.0.1:8000/{TOKEN}/",
    )


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return FakeIndex(tmp_path_factory.mktemp("drawn"))


@pytest.fixture
def index(tmp_path):
    """An index that a test may change."""
    return FakeIndex(tmp_path, num_videos=3, image_size=32, num_frames=16)


@pytest.fixture(scope="module")
def client(drawn):
    return client_of(drawn)


def test_without_the_token_everything_is_refused(drawn):
    app = create_app(drawn, TOKEN, embed_upload=encode_red_circling)
    client = TestClient(app, base_url="http://127.0.0.1:8000")
    for path in ("/", "/wrong/", "/wrong/about", "/about", f"/{TOKEN}x/about", "/static/main.js", "//"):
        response = client.get(path)
        assert response.status_code == 403, path
        assert "printed" in response.text
        assert drawn.segments()[0].path not in response.text


def test_only_this_host_is_served_at_any_port(client):
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
        assert client.get("about", headers={"host": host}).status_code == 403, host
    assert client.get("about", headers={"host": "localhost:9000"}).status_code == 200  # a forwarded port


def test_every_response_has_strict_headers(client):
    for path in ("", "about", "nowhere", "thumbnails/unknown", "static/main.js"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"]


def test_the_page_names_no_other_host_and_no_inline_script(client):
    page = client.get("").text
    assert "://" not in page
    assert "style=" not in page
    assert page.count("<script") == page.count('<script type="module" src="static/')


def test_segments_are_paged_and_filtered_by_name(client, drawn):
    all_of_them = client.get("segments?count=1000").json()
    assert [m["id"] for m in all_of_them["segments"]] == [m.id for m in drawn.segments()]
    part = client.get("segments?first=4&count=3").json()
    assert part["total"] == len(drawn)
    assert part["segments"] == all_of_them["segments"][4:7]
    word = drawn.segments()[0].path.split("/")[1].split("-")[0].upper()
    found = client.get("segments", params={"name": word}).json()
    assert [m["path"] for m in found["segments"]] == [m.path for m in drawn.segments() if word.lower() in m.path]


def test_numbers_out_of_range_are_refused(client, drawn):
    pages = [f"segments?{query}" for query in ("count=0", "count=5000", "first=-1", "first=x")]
    weights = [f"neighbors?id={drawn.segments()[0].id}&motion_weight={weight}" for weight in ("2", "nan")]
    for url in (*pages, *weights):
        response = client.get(url)
        assert response.status_code == 422, url
        assert "must be a number from" in response.json()["error"]


def test_neighbors_are_by_appearance_by_motion_or_mixed(client, drawn):
    moment = drawn.segments()[0]
    for mix in (0, 0.3, 1):
        found = client.get(f"neighbors?id={moment.id}&motion_weight={mix}&top_k=5").json()
        assert len(found) == 5
        assert moment.id not in [f["id"] for f in found]
        assert [f["similarity"] for f in found] == sorted([f["similarity"] for f in found], reverse=True)
        for f in found:
            assert f["similarity"] == pytest.approx((1 - mix) * f["appearance"] + mix * f["motion"], abs=2e-4)


def test_a_bug_is_logged_and_reported_in_one_line(index, caplog):
    index.neighbors = None
    page = create_app(index, TOKEN, embed_upload=encode_red_circling)
    client = TestClient(page, base_url=f"http://127.0.0.1:8000/{TOKEN}/", raise_server_exceptions=False)
    answer = client.get(f"neighbors?id={index.segments()[0].id}")
    assert answer.status_code == 500
    assert "This is a bug in stillmotion" in answer.json()["error"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert caplog.messages[0].startswith("TypeError: ")


def test_a_segment_says_how_it_is_played(client, drawn):
    told = client.get(f"segments/{drawn.segments()[0].id}").json()
    assert told["playback"] == "file"
    assert [m["id"] for m in told["segments_of_video"]] == [told["id"]]


def test_only_ids_of_the_index_and_files_of_the_page_are_served(client):
    ids = ("unknown", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "a%00b")
    for kind in ("thumbnails", "posters", "videos", "previews", "segments"):
        for id in ids:
            assert client.get(f"{kind}/{id}").status_code == 404, f"{kind}/{id}"
    for name in ("..%2Fapp.py", "app.py", "__init__.py", "nothing.js"):
        assert client.get(f"static/{name}").status_code == 404, name


def test_videos_are_served_in_ranges(client, drawn):
    moment = drawn.segments()[0]
    content = drawn.video_path(moment.id).read_bytes()
    whole = client.get(f"videos/{moment.id}")
    assert whole.content == content
    assert whole.headers["content-type"] == "video/mp4"
    part = client.get(f"videos/{moment.id}", headers={"range": "bytes=10-29"})
    assert part.status_code == 206
    assert part.content == content[10:30]
    assert part.headers["content-range"] == f"bytes 10-29/{len(content)}"
    assert client.get(f"videos/{moment.id}", headers={"range": f"bytes={len(content)}-"}).status_code == 416


def test_a_preview_shows_the_segment(client, drawn, tmp_path):
    moment = drawn.segments()[0]
    file = tmp_path / "copy.mp4"
    file.write_bytes(client.get(f"previews/{moment.id}").content)
    copied, own = open_video(file), open_video(drawn.video_path(moment.id))
    assert len(copied) == len(own)
    assert copied.fps == own.fps
    apart = copied.get_frames(range(len(own))).astype(float) - own.get_frames(range(len(own)))
    assert abs(apart).mean() < 8


def test_a_poster_is_one_frame_of_the_thumbnail(client, drawn):
    id = drawn.segments()[0].id
    moving, still = (Image.open(io.BytesIO(client.get(f"{kind}/{id}").content)) for kind in ("thumbnails", "posters"))
    assert getattr(moving, "n_frames", 1) > 1
    assert getattr(still, "n_frames", 1) == 1
    assert moving.size == still.size


def test_a_deleted_video_is_reported(index):
    moment = index.segments()[0]
    index.video_path(moment.id).unlink()
    client = client_of(index)
    assert client.get(f"segments/{moment.id}").json()["playback"] == "missing"
    for kind in ("videos", "previews"):
        answer = client.get(f"{kind}/{moment.id}")
        assert answer.status_code == 410
        assert answer.json()["error"] == f"{moment.path} no longer exists"
    assert client.get(f"thumbnails/{moment.id}").status_code == 200


def test_a_link_out_of_the_folder_is_not_served(index, tmp_path):
    moment = index.segments()[0]
    file = index.video_path(moment.id)
    secret = tmp_path / "secret.mp4"
    file.rename(secret)
    file.symlink_to(secret)
    client = client_of(index)
    for kind in ("videos", "previews"):
        answer = client.get(f"{kind}/{moment.id}")
        assert answer.status_code == 410
        assert "is outside" in answer.json()["error"]
    assert client.get(f"segments/{moment.id}").json()["playback"] == "missing"


def test_an_unplayable_format_has_a_preview(index):
    moment = index.segments()[0]
    place = index.video_path(moment.id)
    place.rename(place.with_suffix(".avi"))
    index.video_path = lambda id: place.with_suffix(".avi")
    client = client_of(index)
    assert client.get(f"segments/{moment.id}").json()["playback"] == "preview"
    assert client.get(f"videos/{moment.id}").status_code == 422
    assert client.get(f"previews/{moment.id}").content[4:8] == b"ftyp"


def dropped_video(folder: Path) -> bytes:
    file = folder / "dropped.mp4"
    video = SyntheticDataset(SyntheticConfig(num_videos=1, num_frames=8, image_size=32)).open_video(0)
    write_mp4(file, video.get_frames(range(8)), size=(32, 32), fps=8, gop_size=8, crf=20)
    return file.read_bytes()


def test_a_dropped_video_is_a_query_and_its_file_is_deleted(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    key = client.post("uploads", content=dropped_video(tmp_path)).json()["query"]
    assert list((tmp_path / "temporary").iterdir()) == []
    found = client.get(f"neighbors?query={key}&motion_weight=1&top_k=1").json()
    assert "circling" in found[0]["path"]
    assert "red" in client.get(f"neighbors?query={key}&motion_weight=0&top_k=1").json()[0]["path"]
    assert client.get("neighbors?query=another").status_code == 404


def test_a_dropped_file_that_is_no_video_is_named(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answer = client.post("uploads", params={"name": "holiday.mov"}, content=b"no video")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("holiday.mov: cannot be decoded")
    assert list(tmp_path.iterdir()) == []


def test_a_dropped_video_has_a_maximum_size(client):
    assert client.post("uploads", content=b"x" * (LIMIT + 1)).status_code == 413
    pieces = (b"x" * 50_000 for _ in range(LIMIT // 50_000 + 1))  # without a content length
    answer = client.post("uploads", content=pieces)
    assert answer.status_code == 413
    assert "larger than" in answer.json()["error"]


def test_uploads_are_processed_one_at_a_time(drawn):
    started, may_finish = threading.Event(), threading.Event()

    def slow(video):
        started.set()
        assert may_finish.wait(60)
        return encode_red_circling(video)

    content = drawn.video_path(drawn.segments()[0].id).read_bytes()
    with client_of(drawn, slow) as client:
        answers = []
        first = threading.Thread(target=lambda: answers.append(client.post("uploads", content=content)))
        first.start()
        assert started.wait(60)
        second = client.post("uploads", content=content)
        may_finish.set()
        first.join(60)
    assert second.status_code == 429
    assert answers[0].status_code == 200


def test_groups_can_be_named_beside_the_index(tmp_path):
    index = FakeIndex(tmp_path, image_size=32, num_frames=8)
    before = sorted(index.videos_dir.rglob("*"))
    client = client_of(index)
    groups = client.get("groups/motion").json()
    assert sum(g["count"] for g in groups) == len(index)
    assert client.put("groups/motion/1", content="  round and  round ").status_code == 204
    assert [g["name"] for g in client.get("groups/motion").json()][:2] == ["", "round and round"]
    assert [g["name"] for g in client_of(index).get("groups/motion").json()][1] == "round and round"
    assert client.get("groups/appearance").json()[0]["name"] == ""
    assert [m["id"] for m in client.get("segments?group=motion:1").json()["segments"]]
    assert client.put("groups/motion/1", content="").status_code == 204
    assert client.get("groups/motion").json()[1]["name"] == ""
    assert json.loads((index.local_dir / "group_labels.json").read_text()) == {"motion": []}
    assert sorted(index.videos_dir.rglob("*")) == before


def test_invalid_group_names_are_refused(client):
    requests = (
        ("motion/99", "x", 404),
        ("sound/0", "x", 404),
        ("appearance/0", "x" * 81, 422),
        ("appearance/0", "x" * 5000, 413),
        ("appearance/0", b"\xff", 422),
    )
    for group, name, code in requests:
        assert client.put(f"groups/{group}", content=name).status_code == code, (group, name)


@pytest.mark.parametrize("videos", [0, 1, 5])
def test_few_videos_have_a_map_and_groups_too(tmp_path, videos):
    client = client_of(FakeIndex(tmp_path, num_videos=videos, image_size=32, num_frames=4))
    for aspect in ("appearance", "motion"):
        found = client.get(f"map/{aspect}").json()
        assert len(found["coordinates"]) == len(found["groups"]) == len(found["ids"]) == videos
        assert all(-1e-3 <= x <= 1 + 1e-3 for place in found["coordinates"] for x in place)
        assert sum(g["count"] for g in client.get(f"groups/{aspect}").json()) == videos
    assert client.get("segments").json()["total"] == videos


def test_file_names_that_are_not_utf8_are_escaped(index):
    moment = replace(index.segments()[0], path="caf\udce9.mp4")
    index._segments[0] = moment
    assert client_of(index).get("segments").json()["segments"][0]["path"] == "caf\\xe9.mp4"


@pytest.mark.parametrize(
    "content", ["[]", "3", '{"motion": 3}', '{"motion": [1]}', '{"motion": [{"name": 1}]}', "[" * 9999]
)
def test_group_labels_of_another_shape_are_named_and_the_page_goes_on(index, content, caplog):
    file = index.local_dir / "group_labels.json"
    file.write_text(content)
    client = client_of(index)
    assert [group["name"] for group in client.get("groups/motion").json()] == [""]
    assert "group_labels.json" in caplog.text
    answer = client.put("groups/motion/0", content="name")
    assert answer.status_code == 422
    assert "group_labels.json" in answer.json()["error"]
    assert file.read_text() == content


def test_a_group_number_of_many_digits_is_unknown(client):
    for number in ("9" * 5000, "²", "-1", "1e3"):
        assert client.put(f"groups/motion/{number}", content="name").status_code == 404


def test_copies_of_one_video_have_a_map_without_warnings(index, recwarn):
    for name in ("appearance", "motion"):
        index._vectors[name] = np.repeat(index._vectors[name][:2], 10, axis=0)
    index._segments = [replace(index._segments[0], id=f"{i:016x}") for i in range(20)]
    assert client_of(index).get("groups/motion").status_code == 200
    assert not [str(warning.message) for warning in recwarn if "sklearn" in str(warning.filename)]


async def send_upload(app, *parts):
    """The status of an upload whose body comes in these parts, and then no more; None is the end of the client."""
    statuses, queue = [], list(parts)

    async def receive():
        if not queue:
            await asyncio.sleep(600)
        part = queue.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(message):
        statuses.append(message.get("status"))

    headers = [(b"host", b"127.0.0.1:8000")]
    path = f"/{TOKEN}/uploads"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app(scope | {"headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send)
    return statuses[0]


def test_a_closed_tab_is_silent_and_a_stalled_upload_ends(drawn, caplog, monkeypatch):
    monkeypatch.setattr("stillmotion.browse.uploads.MAX_SILENT_SECONDS", 0.05)
    app = create_app(drawn, TOKEN, embed_upload=encode_red_circling)

    async def upload_both():
        return await send_upload(app, b"part", None), await send_upload(app, b"part")

    assert asyncio.run(asyncio.wait_for(upload_both(), 20)) == (400, 408)
    assert caplog.text == ""


def test_a_full_temporary_folder_is_named(index, monkeypatch):
    def write(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stillmotion.index.previews.write_mp4", write)
    answer = client_of(index).get(f"previews/{index.segments()[0].id}")
    assert answer.status_code == 422
    assert "No space left on device" in answer.json()["error"]
    assert "TMPDIR" in answer.json()["error"]
