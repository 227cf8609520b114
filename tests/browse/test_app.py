"""What the page's server answers, and what it refuses."""

import io
import json
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

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


def asking(index, encode=encode_red_circling):
    """A client of the index's page, whose addresses are behind the token."""
    return TestClient(
        create_app(index, TOKEN, embed_upload=encode, max_upload_bytes=LIMIT),
        base_url=f"http://127.0.0.1:8000/{TOKEN}/",
    )


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return FakeIndex(tmp_path_factory.mktemp("drawn"))


@pytest.fixture
def index(tmp_path):
    """An index that the test may take videos from."""
    return FakeIndex(tmp_path, num_videos=3, image_size=32, num_frames=16)


@pytest.fixture(scope="module")
def client(drawn):
    return asking(drawn)


@pytest.mark.parametrize(
    "path", ["/", "/wrong/", "/wrong/about", "/about", f"/{TOKEN}x/about", "/static/main.js", "//"]
)
def test_without_the_token_everything_is_refused(drawn, path):
    answer = TestClient(
        create_app(drawn, TOKEN, embed_upload=encode_red_circling), base_url="http://127.0.0.1:8000"
    ).get(path)
    assert answer.status_code == 403
    assert "printed" in answer.text
    assert drawn.segments()[0].path not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""])
def test_another_host_name_is_refused(client, host):
    assert client.get("about", headers={"host": host}).status_code == 403


def test_a_forwarded_port_is_welcome(client):
    assert client.get("about", headers={"host": "localhost:9000"}).status_code == 200


@pytest.mark.parametrize("path", ["", "about", "nowhere", "thumbnails/unknown", "static/main.js"])
def test_every_answer_has_strict_headers(client, path):
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


def test_moments_come_in_pages_and_by_name(client, drawn):
    all_of_them = client.get("segments?count=1000").json()
    assert [m["id"] for m in all_of_them["segments"]] == [m.id for m in drawn.segments()]
    part = client.get("segments?first=4&count=3").json()
    assert part["total"] == len(drawn)
    assert part["segments"] == all_of_them["segments"][4:7]
    word = drawn.segments()[0].path.split("/")[1].split("-")[0].upper()
    found = client.get("segments", params={"name": word}).json()
    assert [m["path"] for m in found["segments"]] == [m.path for m in drawn.segments() if word.lower() in m.path]


@pytest.mark.parametrize(
    "asked",
    [
        "segments?count=0",
        "segments?count=5000",
        "segments?first=-1",
        "segments?first=x",
        "neighbors?id={id}&motion_weight=2",
        "neighbors?id={id}&motion_weight=nan",
    ],
)
def test_numbers_out_of_bounds_are_told(client, drawn, asked):
    answer = client.get(asked.format(id=drawn.segments()[0].id))
    assert answer.status_code == 422
    assert "must be a number from" in answer.json()["error"]


def test_near_is_by_look_by_motion_or_by_a_mixture(client, drawn):
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


def test_a_moment_tells_how_it_is_shown(client, drawn):
    told = client.get(f"segments/{drawn.segments()[0].id}").json()
    assert told["playback"] == "file"
    assert [m["id"] for m in told["segments_of_video"]] == [told["id"]]


@pytest.mark.parametrize("kind", ["thumbnails", "posters", "videos", "previews", "segments"])
@pytest.mark.parametrize("id", ["unknown", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "a%00b"])
def test_only_ids_of_the_index_name_anything(client, kind, id):
    assert client.get(f"{kind}/{id}").status_code == 404


@pytest.mark.parametrize("name", ["..%2Fapp.py", "app.py", "__init__.py", "nothing.js"])
def test_only_parts_of_the_page_are_given(client, name):
    assert client.get(f"static/{name}").status_code == 404


def test_films_are_given_in_ranges(client, drawn):
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


def test_a_copy_shows_the_moment(client, drawn, tmp_path):
    moment = drawn.segments()[0]
    file = tmp_path / "copy.mp4"
    file.write_bytes(client.get(f"previews/{moment.id}").content)
    copied, own = open_video(file), open_video(drawn.video_path(moment.id))
    assert len(copied) == len(own)
    assert copied.fps == own.fps
    apart = copied.get_frames(range(len(own))).astype(float) - own.get_frames(range(len(own)))
    assert abs(apart).mean() < 8


def test_a_still_is_one_frame_of_the_moving_thumbnail(client, drawn):
    id = drawn.segments()[0].id
    moving, still = (Image.open(io.BytesIO(client.get(f"{kind}/{id}").content)) for kind in ("thumbnails", "posters"))
    assert getattr(moving, "n_frames", 1) > 1
    assert getattr(still, "n_frames", 1) == 1
    assert moving.size == still.size


def test_a_video_that_has_gone_is_told(index):
    moment = index.segments()[0]
    index.video_path(moment.id).unlink()
    client = asking(index)
    assert client.get(f"segments/{moment.id}").json()["playback"] == "missing"
    for kind in ("videos", "previews"):
        answer = client.get(f"{kind}/{moment.id}")
        assert answer.status_code == 410
        assert answer.json()["error"] == f"{moment.path} no longer exists"
    assert client.get(f"thumbnails/{moment.id}").status_code == 200


def test_a_video_that_leads_out_of_the_folder_is_not_given(index, tmp_path):
    moment = index.segments()[0]
    file = index.video_path(moment.id)
    secret = tmp_path / "secret.mp4"
    file.rename(secret)
    file.symlink_to(secret)
    client = asking(index)
    for kind in ("videos", "previews"):
        answer = client.get(f"{kind}/{moment.id}")
        assert answer.status_code == 410
        assert "is outside" in answer.json()["error"]
    assert client.get(f"segments/{moment.id}").json()["playback"] == "missing"


def test_a_format_that_browsers_do_not_play_is_shown_as_a_copy(index):
    moment = index.segments()[0]
    place = index.video_path(moment.id)
    place.rename(place.with_suffix(".avi"))
    index.video_path = lambda id: place.with_suffix(".avi")
    client = asking(index)
    assert client.get(f"segments/{moment.id}").json()["playback"] == "preview"
    assert client.get(f"videos/{moment.id}").status_code == 422
    assert client.get(f"previews/{moment.id}").content[4:8] == b"ftyp"


def dropped_video(folder: Path) -> bytes:
    file = folder / "dropped.mp4"
    video = SyntheticDataset(SyntheticConfig(num_videos=1, num_frames=8, image_size=32)).open_video(0)
    write_mp4(file, video.get_frames(range(8)), size=(32, 32), fps=8, gop_size=8, crf=20)
    return file.read_bytes()


def test_a_dropped_video_is_searched_by_and_forgotten(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    key = client.post("uploads", content=dropped_video(tmp_path)).json()["query"]
    assert list((tmp_path / "temporary").iterdir()) == []
    found = client.get(f"neighbors?query={key}&motion_weight=1&top_k=1").json()
    assert "circling" in found[0]["path"]
    assert "red" in client.get(f"neighbors?query={key}&motion_weight=0&top_k=1").json()[0]["path"]
    assert client.get("neighbors?query=another").status_code == 404


def test_what_is_dropped_and_is_no_video_is_told_and_forgotten(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answer = client.post("uploads", params={"name": "holiday.mov"}, content=b"no video")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("holiday.mov: cannot be decoded")
    assert list(tmp_path.iterdir()) == []


def test_a_dropped_video_has_a_largest_size(client):
    assert client.post("uploads", content=b"x" * (LIMIT + 1)).status_code == 413
    pieces = (b"x" * 50_000 for _ in range(LIMIT // 50_000 + 1))  # whose sum is not said beforehand
    answer = client.post("uploads", content=pieces)
    assert answer.status_code == 413
    assert "larger than" in answer.json()["error"]


def test_one_dropped_video_is_looked_at_at_a_time(drawn):
    begun, go_on = threading.Event(), threading.Event()

    def slow(video):
        begun.set()
        assert go_on.wait(60)
        return encode_red_circling(video)

    content = drawn.video_path(drawn.segments()[0].id).read_bytes()
    with asking(drawn, slow) as client:
        answers = []
        first = threading.Thread(target=lambda: answers.append(client.post("uploads", content=content)))
        first.start()
        assert begun.wait(60)
        second = client.post("uploads", content=content)
        go_on.set()
        first.join(60)
    assert second.status_code == 429
    assert answers[0].status_code == 200


def test_groups_can_be_named_beside_the_index(tmp_path):
    index = FakeIndex(tmp_path, image_size=32, num_frames=8)
    before = sorted(index.videos_dir.rglob("*"))
    client = asking(index)
    groups = client.get("groups/motion").json()
    assert sum(g["count"] for g in groups) == len(index)
    assert client.put("groups/motion/1", content="  round and  round ").status_code == 204
    assert [g["name"] for g in client.get("groups/motion").json()][:2] == ["", "round and round"]
    assert [g["name"] for g in asking(index).get("groups/motion").json()][1] == "round and round"
    assert client.get("groups/appearance").json()[0]["name"] == ""
    assert [m["id"] for m in client.get("segments?group=motion:1").json()["segments"]]
    assert client.put("groups/motion/1", content="").status_code == 204
    assert client.get("groups/motion").json()[1]["name"] == ""
    assert json.loads((index.local_dir / "group_labels.json").read_text()) == {"motion": []}
    assert sorted(index.videos_dir.rglob("*")) == before


@pytest.mark.parametrize(
    ("place", "name", "code"),
    [
        ("motion/99", "x", 404),
        ("sound/0", "x", 404),
        ("appearance/0", "x" * 81, 422),
        ("appearance/0", "x" * 5000, 413),
        ("appearance/0", b"\xff", 422),
    ],
)
def test_names_that_cannot_be_are_refused(client, place, name, code):
    assert client.put(f"groups/{place}", content=name).status_code == code


@pytest.mark.parametrize("videos", [0, 1, 2, 3, 5])
def test_few_videos_have_a_map_and_groups_too(tmp_path, videos):
    client = asking(FakeIndex(tmp_path, num_videos=videos, image_size=32, num_frames=4))
    for aspect in ("appearance", "motion"):
        found = client.get(f"map/{aspect}").json()
        assert len(found["coordinates"]) == len(found["groups"]) == len(found["ids"]) == videos
        assert all(-1e-3 <= x <= 1 + 1e-3 for place in found["coordinates"] for x in place)
        assert sum(g["count"] for g in client.get(f"groups/{aspect}").json()) == videos
    assert client.get("segments").json()["total"] == videos


def test_names_of_files_that_are_no_text_are_shown_all_the_same(index):
    moment = replace(index.segments()[0], path="caf\udce9.mp4")
    index._segments[0] = moment
    assert asking(index).get("segments").json()["segments"][0]["path"] == "caf\\xe9.mp4"
