"""The page of a run folder of any verb."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support import small_detect, small_finetune, small_pretrain, small_segment
from support.class_videos import write_class_folders
from support.html import assert_self_contained
from support.process import Command

from stillmotion.errors import StillmotionError
from stillmotion.models.mstcn import MSTCNConfig
from stillmotion.training.detect.task import detect
from stillmotion.training.finetune.task import finetune, finetune_folds
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.run_report import write_run_page
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.segment.recipes import SEGMENT_RECIPES
from stillmotion.training.segment.report import write_segment_page
from stillmotion.training.segment.task import segment
from stillmotion.training.tasks import TASKS
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer


def small_segment_config() -> SegmentConfig:
    """Return the debug recipe of `segment`, reduced to seconds."""
    config = SEGMENT_RECIPES.get("breakfast", debug=True)
    return replace(
        config,
        data=replace(config.data, synthetic=small_segment.TINY_VIDEOS),
        head=MSTCNConfig(num_stages=2, num_layers=2, hidden_dim=8),
        optim=replace(config.optim, epochs=1),
    )


def write_folds(root: Path) -> Path:
    """Write two classes of videos with a list of two folds."""
    write_class_folders(root, videos_per_class=4)
    rows = [
        f"{name}/{i}.mp4,{name},{'test' if i < 2 else 'train'},{'train' if i < 2 else 'test'}"
        for name in ("dark", "light")
        for i in range(4)
    ]
    (root / "labels.csv").write_text("\n".join(["path,class,split1,split2", *rows]))
    return root


def train_folds(folder: Path) -> None:
    data = {"path": str(write_folds(folder.with_name("videos"))), "target": ""}
    finetune_folds(small_finetune.small_config(epochs=1, data=data), folder, [1, 2])


# Function that trains a run in a folder, and the title of its page.
TRAIN_FUNCTIONS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pretrain": (partial(pretrain, small_pretrain.small_config()), "Pretraining run: run"),
    "transfer": (partial(transfer, TRANSFER_RECIPES.get("dinov2-b16", debug=True)), "Transfer run: run"),
    "finetune": (partial(finetune, small_finetune.small_config(epochs=1)), "Fine-tuning run: run"),
    "detect": (partial(detect, small_detect.small_config(epochs=1)), "Action detection run: run"),
    "segment": (partial(segment, small_segment_config()), "Action segmentation run: run"),
    "folds of finetune": (train_folds, "Fine-tuning on 2 folds: run"),
}


@pytest.mark.parametrize("made_by", TRAIN_FUNCTIONS)
def test_a_run_of_every_verb_and_a_folder_of_folds_have_a_page(made_by: str, tmp_path: Path) -> None:
    train, title = TRAIN_FUNCTIONS[made_by]
    with small_pretrain.single_thread():
        train(tmp_path / "run")
    file = write_run_page(tmp_path / "run")
    assert file == tmp_path / "run" / "report.html"
    html = file.read_text()
    assert f"<h1>{title}</h1>" in html
    assert "<svg" in html
    assert_self_contained(html)


def test_every_training_verb_has_its_page() -> None:
    assert set(TASKS) < set(TRAIN_FUNCTIONS)


def test_the_page_of_a_segment_run_made_again_is_the_one_that_the_run_wrote(tmp_path: Path) -> None:
    with small_pretrain.single_thread():
        result = segment(small_segment_config(), tmp_path / "run")
    first = write_segment_page(tmp_path / "run", result).read_text()
    picture = (tmp_path / "run" / "timelines.png").read_bytes()
    assert "<h2>Timelines" in first
    for file in ("report.html", "timelines.png"):
        (tmp_path / "run" / file).unlink()
    assert write_run_page(tmp_path / "run").read_text() == first
    assert (tmp_path / "run" / "timelines.png").read_bytes() == picture


INVALID_FOLDERS: dict[str, dict[str, str] | None] = {
    "nothing there": None,
    "an empty folder": {},
    "no JSON": {"config.json": "torn"},
    "another program's JSON": {"config.json": "[1, 2]"},
    "a model of transformers": {"config.json": '{"model_type": "dinov2"}'},
    "another verb": {"config.json": '{"verb": "dance"}'},
    "folds of nobody": {"fold1/config.json": "torn"},
}


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    for case, files in INVALID_FOLDERS.items():
        folder = tmp_path / case
        if files is not None:
            folder.mkdir()
        for name, content in (files or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)
        with pytest.raises(
            StillmotionError, match=f"{case} is not a run folder of .*; give the --out of such"
        ) as error:
            write_run_page(folder)
        assert "\n" not in str(error.value)
    assert not list(tmp_path.rglob("report.html"))


def test_the_command_refuses_a_run_of_another_version_and_a_file_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"verb": "finetune", "speed": 3}')
    (tmp_path / "results.json").write_text("{}")
    messages = {
        tmp_path: "it was written by another version",
        tmp_path / "config.json": "is not a run folder of pretrain",
    }
    commands = {path: Command("report", str(path)) for path in messages}
    for path, command in commands.items():
        assert messages[path] in command.expect_error()
