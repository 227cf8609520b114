"""Responses of the page's server, and requests that it refuses."""

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


def make_client(index, encode=encode_red_circling):
    """Return a client of the page of an index; paths are relative to the token."""
    return TestClient(
        create_app(index, TOKEN, embed_upload=encode, max_upload_bytes=LIMIT),
        base_url=f"http://127.0.0.1:8000/{TOKEN}/",
    )


@pytest.fixture(scope="module")
def shared_index(tmp_path_factory):
    return FakeIndex(tmp_path_factory.mktemp("drawn"))


@pytest.fixture
def index(tmp_path):
    """An index that a test may change."""
    return FakeIndex(tmp_path, num_videos=3, image_size=32, num_frames=16)


@pytest.fixture(scope="module")
def client(shared_index):
    return make_client(shared_index)


def test_without_the_token_everything_is_refused(shared_index):
    app = create_app(shared_index, TOKEN, embed_upload=encode_red_circling)
    client = TestClient(app, base_url="http://127.0.0.1:8000")
    for path in ("/", "/wrong/", "/wrong/about", "/about", f"/{TOKEN}x/about", "/static/main.js", "//"):
        response = client.get(path)
        assert response.status_code == 403, path
        assert "printed" in response.text
        assert shared_index.segments()[0].path not in response.text


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


def test_segments_are_paged_and_filtered_by_name(client, shared_index):
    all_segments = client.get("segments?count=1000").json()
    assert [m["id"] for m in all_segments["segments"]] == [m.id for m in shared_index.segments()]
    page = client.get("segments?first=4&count=3").json()
    assert page["total"] == len(shared_index)
    assert page["segments"] == all_segments["segments"][4:7]
    word = shared_index.segments()[0].path.split("/")[1].split("-")[0].upper()
    matches = client.get("segments", params={"name": word}).json()
    assert [m["path"] for m in matches["segments"]] == [
        m.path for m in shared_index.segments() if word.lower() in m.path
    ]


def test_numbers_out_of_range_are_refused(client, shared_index):
    pages = [f"segments?{query}" for query in ("count=0", "count=5000", "first=-1", "first=x")]
    weights = [f"neighbors?id={shared_index.segments()[0].id}&motion_weight={weight}" for weight in ("2", "nan")]
    for url in (*pages, *weights):
        response = client.get(url)
        assert response.status_code == 422, url
        assert "must be a number from" in response.json()["error"]


def test_neighbors_are_by_appearance_by_motion_or_mixed(client, shared_index):
    segment = shared_index.segments()[0]
    for mix in (0, 0.3, 1):
        neighbors = client.get(f"neighbors?id={segment.id}&motion_weight={mix}&top_k=5").json()
        assert len(neighbors) == 5
        assert segment.id not in [f["id"] for f in neighbors]
        assert [f["similarity"] for f in neighbors] == sorted([f["similarity"] for f in neighbors], reverse=True)
        for f in neighbors:
            assert f["similarity"] == pytest.approx((1 - mix) * f["appearance"] + mix * f["motion"], abs=2e-4)


def test_a_bug_is_logged_and_reported_in_one_line(index, caplog):
    index.neighbors = None
    page = create_app(index, TOKEN, embed_upload=encode_red_circling)
    client = TestClient(page, base_url=f"http://127.0.0.1:8000/{TOKEN}/", raise_server_exceptions=False)
    response = client.get(f"neighbors?id={index.segments()[0].id}")
    assert response.status_code == 500
    assert "This is a bug in stillmotion" in response.json()["error"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert caplog.messages[0].startswith("TypeError: ")


def test_a_segment_says_how_it_is_played(client, shared_index):
    segment = client.get(f"segments/{shared_index.segments()[0].id}").json()
    assert segment["playback"] == "file"
    assert [m["id"] for m in segment["segments_of_video"]] == [segment["id"]]


def test_only_ids_of_the_index_and_files_of_the_page_are_served(client):
    ids = ("unknown", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "a%00b")
    for kind in ("thumbnails", "posters", "videos", "previews", "segments"):
        for id in ids:
            assert client.get(f"{kind}/{id}").status_code == 404, f"{kind}/{id}"
    for name in ("..%2Fapp.py", "app.py", "__init__.py", "nothing.js"):
        assert client.get(f"static/{name}").status_code == 404, name


def test_videos_are_served_in_ranges(client, shared_index):
    segment = shared_index.segments()[0]
    content = shared_index.video_path(segment.id).read_bytes()
    full = client.get(f"videos/{segment.id}")
    assert full.content == content
    assert full.headers["content-type"] == "video/mp4"
    partial = client.get(f"videos/{segment.id}", headers={"range": "bytes=10-29"})
    assert partial.status_code == 206
    assert partial.content == content[10:30]
    assert partial.headers["content-range"] == f"bytes 10-29/{len(content)}"
    assert client.get(f"videos/{segment.id}", headers={"range": f"bytes={len(content)}-"}).status_code == 416


def test_a_preview_shows_the_segment(client, shared_index, tmp_path):
    segment = shared_index.segments()[0]
    file = tmp_path / "copy.mp4"
    file.write_bytes(client.get(f"previews/{segment.id}").content)
    preview, original = open_video(file), open_video(shared_index.video_path(segment.id))
    assert len(preview) == len(original)
    assert preview.fps == original.fps
    difference = preview.get_frames(range(len(original))).astype(float) - original.get_frames(range(len(original)))
    assert abs(difference).mean() < 8


def test_a_poster_is_one_frame_of_the_thumbnail(client, shared_index):
    id = shared_index.segments()[0].id
    thumbnail, poster = (
        Image.open(io.BytesIO(client.get(f"{kind}/{id}").content)) for kind in ("thumbnails", "posters")
    )
    assert getattr(thumbnail, "n_frames", 1) > 1
    assert getattr(poster, "n_frames", 1) == 1
    assert thumbnail.size == poster.size


def test_a_deleted_video_is_reported(index):
    segment = index.segments()[0]
    index.video_path(segment.id).unlink()
    client = make_client(index)
    assert client.get(f"segments/{segment.id}").json()["playback"] == "missing"
    for kind in ("videos", "previews"):
        response = client.get(f"{kind}/{segment.id}")
        assert response.status_code == 410
        assert response.json()["error"] == f"{segment.path} no longer exists"
    assert client.get(f"thumbnails/{segment.id}").status_code == 200


def test_a_link_out_of_the_folder_is_not_served(index, tmp_path):
    segment = index.segments()[0]
    file = index.video_path(segment.id)
    secret = tmp_path / "secret.mp4"
    file.rename(secret)
    file.symlink_to(secret)
    client = make_client(index)
    for kind in ("videos", "previews"):
        response = client.get(f"{kind}/{segment.id}")
        assert response.status_code == 410
        assert "is outside" in response.json()["error"]
    assert client.get(f"segments/{segment.id}").json()["playback"] == "missing"


def test_an_unplayable_format_has_a_preview(index):
    segment = index.segments()[0]
    file = index.video_path(segment.id)
    file.rename(file.with_suffix(".avi"))
    index.video_path = lambda id: file.with_suffix(".avi")
    client = make_client(index)
    assert client.get(f"segments/{segment.id}").json()["playback"] == "preview"
    assert client.get(f"videos/{segment.id}").status_code == 422
    assert client.get(f"previews/{segment.id}").content[4:8] == b"ftyp"


def write_upload(folder: Path) -> bytes:
    file = folder / "dropped.mp4"
    video = SyntheticDataset(SyntheticConfig(num_videos=1, num_frames=8, image_size=32)).open_video(0)
    write_mp4(file, video.get_frames(range(8)), size=(32, 32), fps=8, gop_size=8, crf=20)
    return file.read_bytes()


def test_a_dropped_video_is_a_query_and_its_file_is_deleted(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    key = client.post("uploads", content=write_upload(tmp_path)).json()["query"]
    assert list((tmp_path / "temporary").iterdir()) == []
    results = client.get(f"neighbors?query={key}&motion_weight=1&top_k=1").json()
    assert "circling" in results[0]["path"]
    assert "red" in client.get(f"neighbors?query={key}&motion_weight=0&top_k=1").json()[0]["path"]
    assert client.get("neighbors?query=another").status_code == 404


def test_a_dropped_file_that_is_no_video_is_named(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    response = client.post("uploads", params={"name": "holiday.mov"}, content=b"no video")
    assert response.status_code == 422
    assert response.json()["error"].startswith("holiday.mov: cannot be decoded")
    assert list(tmp_path.iterdir()) == []


def test_a_dropped_video_has_a_maximum_size(client):
    assert client.post("uploads", content=b"x" * (LIMIT + 1)).status_code == 413
    chunks = (b"x" * 50_000 for _ in range(LIMIT // 50_000 + 1))  # without a content length
    response = client.post("uploads", content=chunks)
    assert response.status_code == 413
    assert "larger than" in response.json()["error"]


def test_uploads_are_processed_one_at_a_time(shared_index):
    started, may_finish = threading.Event(), threading.Event()

    def slow(video):
        started.set()
        assert may_finish.wait(60)
        return encode_red_circling(video)

    content = shared_index.video_path(shared_index.segments()[0].id).read_bytes()
    with make_client(shared_index, slow) as client:
        first_responses = []
        first = threading.Thread(target=lambda: first_responses.append(client.post("uploads", content=content)))
        first.start()
        assert started.wait(60)
        second = client.post("uploads", content=content)
        may_finish.set()
        first.join(60)
    assert second.status_code == 429
    assert first_responses[0].status_code == 200


def test_groups_can_be_named_beside_the_index(tmp_path):
    index = FakeIndex(tmp_path, image_size=32, num_frames=8)
    before = sorted(index.videos_dir.rglob("*"))
    client = make_client(index)
    groups = client.get("groups/motion").json()
    assert sum(g["count"] for g in groups) == len(index)
    assert client.put("groups/motion/1", content="  round and  round ").status_code == 204
    assert [g["name"] for g in client.get("groups/motion").json()][:2] == ["", "round and round"]
    assert [g["name"] for g in make_client(index).get("groups/motion").json()][1] == "round and round"
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
    client = make_client(FakeIndex(tmp_path, num_videos=videos, image_size=32, num_frames=4))
    for aspect in ("appearance", "motion"):
        embedding_map = client.get(f"map/{aspect}").json()
        assert len(embedding_map["coordinates"]) == len(embedding_map["groups"]) == len(embedding_map["ids"]) == videos
        assert all(-1e-3 <= x <= 1 + 1e-3 for point in embedding_map["coordinates"] for x in point)
        assert sum(g["count"] for g in client.get(f"groups/{aspect}").json()) == videos
    assert client.get("segments").json()["total"] == videos


def test_file_names_that_are_not_utf8_are_escaped(index):
    segment = replace(index.segments()[0], path="caf\udce9.mp4")
    index._segments[0] = segment
    assert make_client(index).get("segments").json()["segments"][0]["path"] == "caf\\xe9.mp4"


@pytest.mark.parametrize(
    "content", ["[]", "3", '{"motion": 3}', '{"motion": [1]}', '{"motion": [{"name": 1}]}', "[" * 9999]
)
def test_group_labels_of_another_shape_are_named_and_the_page_goes_on(index, content, caplog):
    file = index.local_dir / "group_labels.json"
    file.write_text(content)
    client = make_client(index)
    assert [group["name"] for group in client.get("groups/motion").json()] == [""]
    assert "group_labels.json" in caplog.text
    response = client.put("groups/motion/0", content="name")
    assert response.status_code == 422
    assert "group_labels.json" in response.json()["error"]
    assert file.read_text() == content


def test_a_group_number_of_many_digits_is_unknown(client):
    for number in ("9" * 5000, "²", "-1", "1e3"):
        assert client.put(f"groups/motion/{number}", content="name").status_code == 404


def test_copies_of_one_video_have_a_map_without_warnings(index, recwarn):
    for name in ("appearance", "motion"):
        index._vectors[name] = np.repeat(index._vectors[name][:2], 10, axis=0)
    index._segments = [replace(index._segments[0], id=f"{i:016x}") for i in range(20)]
    assert make_client(index).get("groups/motion").status_code == 200
    assert not [str(warning.message) for warning in recwarn if "sklearn" in str(warning.filename)]


async def send_upload(app, *chunks):
    """Return the status of an upload that sends these chunks and then stalls; None closes the connection."""
    statuses, queue = [], list(chunks)

    async def receive():
        if not queue:
            await asyncio.sleep(600)
        chunk = queue.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def send(message):
        statuses.append(message.get("status"))

    headers = [(b"host", b"127.0.0.1:8000")]
    path = f"/{TOKEN}/uploads"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app(scope | {"headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send)
    return statuses[0]


def test_a_closed_tab_is_silent_and_a_stalled_upload_ends(shared_index, caplog, monkeypatch):
    monkeypatch.setattr("stillmotion.browse.uploads.MAX_SILENT_SECONDS", 0.05)
    app = create_app(shared_index, TOKEN, embed_upload=encode_red_circling)

    async def upload_both():
        return await send_upload(app, b"part", None), await send_upload(app, b"part")

    assert asyncio.run(asyncio.wait_for(upload_both(), 20)) == (400, 408)
    assert caplog.text == ""


def test_a_full_temporary_folder_is_named(index, monkeypatch):
    def write(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stillmotion.index.previews.write_mp4", write)
    response = make_client(index).get(f"previews/{index.segments()[0].id}")
    assert response.status_code == 422
    assert "No space left on device" in response.json()["error"]
    assert "TMPDIR" in response.json()["error"]
