"""Malformed annotation lists are read, or refused by an error that names the file and the line."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.numbered_videos import touch_files

from stillmotion.data.datasets.annotations import read_diving48, read_hmdb51, read_kinetics, read_ssv2, read_ucf101
from stillmotion.data.datasets.ava import AVADataset, read_box_csv
from stillmotion.data.datasets.csv_list import open_list_dataset
from stillmotion.data.datasets.public_datasets import PUBLIC_DATASETS
from stillmotion.data.datasets.verify import format_verification, verify_dataset
from stillmotion.errors import StillmotionError
from tools.fault_injection.annotation_lists import ANNOTATION_LISTS, LISTED_VIDEOS

LISTS = {name: files for name, files in ANNOTATION_LISTS.items() if name != "breakfast"}
WORDS = (b"", b" ", b"\n", b"\0", b"\xff\xfe", b'"', b",", b"/", b"..", b"-1", b"nan", b"1e999", b"9" * 30, b"[", b"}")
EXTRA_JSON = (None, True, 1.5, -1, "", "x", 10**12, [], {}, [[]], {"id": None}, "\ud800")


def mutate_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Corrupt a list at a random position, as editors, spreadsheets and disks do."""
    start, stop = sorted(rng.integers(0, len(content) + 1, 2).tolist())
    word = WORDS[rng.integers(len(WORDS))]
    lines = content.splitlines(keepends=True)
    changes = [
        b"\xef\xbb\xbf" + content,
        content[:start],
        content[:start] + word + content[start:],
        content[:start] + word + content[min(stop, start + 8) :],
        b"".join(lines[i] for i in rng.permutation(len(lines))),
        content + lines[0],
        content.decode().encode("utf-16"),
        word,
        rng.bytes(40),
        content.replace(b" ", b"\t") + b"one\n",
    ]
    return changes[rng.integers(len(changes))]


def mutate_json(value: Any, rng: np.random.Generator) -> Any:
    """Replace a random part of plain data by something of another kind."""
    children = list(range(len(value))) if isinstance(value, list) else list(value) if isinstance(value, dict) else []
    if not children or rng.random() < 0.2:
        return EXTRA_JSON[rng.integers(len(EXTRA_JSON))]
    key = children[rng.integers(len(children))]
    value = value.copy()
    value[key] = mutate_json(value[key], rng)
    return value


def open_and_verify(name: str, root: Path, lists: Path) -> None:
    for use in (
        lambda: _open(name, root, lists),
        lambda: format_verification(verify_dataset(name, root, annotations=lists)),
    ):
        try:
            use()
        except StillmotionError as error:
            assert "\n" not in str(error)  # noqa: PT017


def _open(name: str, root: Path, lists: Path) -> None:
    if name == "ava":
        AVADataset(root, "train", annotations=lists, train=True)
        return
    open_fn = PUBLIC_DATASETS[name].open
    assert open_fn is not None
    videos = open_fn(root, lists, "train", 1)
    assert all(-1 <= label < len(videos.classes["class"]) for label in videos.labels["class"])


@pytest.mark.parametrize("name", LISTS)
def test_mutated_lists_only_raise_errors_that_the_user_can_fix(tmp_path: Path, name: str) -> None:
    root, lists = touch_files(tmp_path / "videos", *LISTED_VIDEOS), tmp_path / "lists"
    lists.mkdir()
    rng = np.random.default_rng(0)
    for list_name, text in LISTS[name].items():
        (lists / list_name).write_text(text)
    _open(name, root, lists)
    for _ in range(24):
        file = lists / list(LISTS[name])[rng.integers(len(LISTS[name]))]
        content = file.read_bytes()
        if file.suffix == ".json" and rng.random() < 0.6:
            file.write_text(json.dumps(mutate_json(json.loads(content), rng)))
        else:
            file.write_bytes(mutate_bytes(content, rng))
        open_and_verify(name, root, lists)
        file.write_bytes(content)
    for file in [lists / list_name for list_name in LISTS[name]]:
        for make in (Path.mkdir, os.mkfifo):
            file.unlink()
            make(file)  # type: ignore[operator]
            open_and_verify(name, root, lists)
            file.rmdir() if make is Path.mkdir else file.unlink()
            file.write_text(LISTS[name][file.name])


@pytest.mark.parametrize(
    ("file", "text", "read", "message"),
    [
        ("trainlist01.txt", "Archery/a.avi 1\nFlying/b.avi 2", lambda d: read_ucf101(d, train=True, fold=1),
         r"trainlist01.txt, line 2: got 'Flying/b.avi 2', expected <class>/<video> with a class of classInd.txt"),
        ("classInd.txt", "1 Archery\n\nBiking", lambda d: read_ucf101(d, train=True, fold=1),
         r"classInd.txt, line 3: got 'Biking', expected <number> <class>"),
        ("run_test_split1.txt", "run_1.avi", lambda d: read_hmdb51(d, train=True, fold=1),
         r"run_test_split1.txt, line 1: got 'run_1.avi', expected <video> <0, 1 or 2>"),
        ("train.csv", "label,youtube_id,time_start,time_end\na,x,1,11\na,y,one,11\n",
         lambda d: read_kinetics(d / "train.csv"),
         r"train.csv, line 3: got 'a,y,one,11', expected label,youtube_id,time_start,time_end"),
        ("train.csv", "label,path\na,x\n", lambda d: read_kinetics(d / "train.csv"),
         r"train.csv, line 1: got 'label,path', expected the columns label,youtube_id"),
        ("something-something-v2-train.json", '[{"id": "1"}, {}]',
         lambda d: read_ssv2(d / "something-something-v2-labels.json", d / "something-something-v2-train.json"),
         r"train.json, item 2: got \{\}, expected an object with id and template"),
        ("Diving48_V2_train.json", '[{"vid_name": "a", "label": 7}]', lambda d: read_diving48(d, train=True),
         r"train.json, item 1: got \{'vid_name': 'a', 'label': 7\}, expected .* below 2"),
        ("ava_train_v2.2.csv", "a,0902,0.1,0.2,0.3,0.4,11,0\nb,0903\n",
         lambda d: read_box_csv(d / "ava_train_v2.2.csv"),
         r"ava_train_v2.2.csv, line 2: got 'b,0903', expected video, second, left"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_the_line_and_what_was_expected(
    tmp_path: Path, file: str, text: str, read: Callable[[Path], Any], message: str
) -> None:
    for texts in LISTS.values():
        for name, content in texts.items():
            (tmp_path / name).write_text(content)
    (tmp_path / file).write_text(text)
    with pytest.raises(StillmotionError, match=message):
        read(tmp_path)


def test_a_byte_order_mark_is_no_part_of_a_list(tmp_path: Path) -> None:
    for texts in LISTS.values():
        for name, content in texts.items():
            (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert read_ucf101(tmp_path, train=True, fold=1).classes == ["Archery", "Biking"]
    assert read_diving48(tmp_path, train=True).classes == ["Back+PIKE", "Front+FREE"]
    prefix = tmp_path / "something-something-v2"
    assert len(read_ssv2(Path(f"{prefix}-labels.json"), Path(f"{prefix}-train.json")).entries) == 2
    assert read_kinetics(tmp_path / "train.csv").entries[0][0][1] == "xyz"


def test_values_with_line_breaks_are_quoted_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text('path,split\na.mp4,"one\ntwo"\n')
    with pytest.raises(StillmotionError, match=r"it has 'one\\ntwo'"):
        open_list_dataset(tmp_path / "list.csv", None, split="test")
