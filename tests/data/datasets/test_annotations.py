"""Each published layout in miniature, with the official file names and formats."""

import json
from pathlib import Path

import pytest
from support.numbered_videos import touch_files

from stillmotion.data.datasets.annotations import AnnotatedDataset, read_hmdb51, read_kinetics, read_ssv2, read_ucf101
from stillmotion.data.datasets.base import PathDataset, VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.errors import StillmotionError


def labels_by_name(videos: VideoDataset) -> dict[str, int]:
    assert isinstance(videos, PathDataset)
    return dict(zip((path.name for path in videos.paths), videos.labels["class"].tolist(), strict=True))


@pytest.fixture
def ucf101(tmp_path: Path) -> Path:
    touch_files(tmp_path / "UCF-101", "Archery/v_Archery_g01_c01.avi", "Archery/v_Archery_g08_c01.avi")
    touch_files(tmp_path / "UCF-101", "Biking/v_Biking_g08_c01.avi")
    lists = tmp_path / "ucfTrainTestlist"
    lists.mkdir()
    (lists / "classInd.txt").write_text("1 ApplyEyeMakeup\r\n2 Archery\r\n3 Biking\r\n")
    (lists / "trainlist01.txt").write_text(
        "ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi 1\r\n"
        "Archery/v_Archery_g08_c01.avi 2\r\n"
        "Biking/v_Biking_g08_c01.avi 3\r\n"
    )
    (lists / "testlist01.txt").write_text("Archery/v_Archery_g01_c01.avi\r\n")
    (lists / "trainlist02.txt").write_text("Archery/v_Archery_g01_c01.avi 2\r\n")
    (lists / "testlist02.txt").write_text("Archery/v_Archery_g08_c01.avi\r\n")
    return tmp_path


def test_ucf101_reads_its_lists_and_names_missing_videos(ucf101: Path) -> None:
    lists = ucf101 / "ucfTrainTestlist"
    train = AnnotatedDataset(ucf101 / "UCF-101", read_ucf101(lists, train=True, fold=1))
    assert labels_by_name(train) == {"v_Archery_g08_c01.avi": 1, "v_Biking_g08_c01.avi": 2}
    assert train.missing_videos == ["ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01"]
    assert train.classes["class"] == ["ApplyEyeMakeup", "Archery", "Biking"]
    test = AnnotatedDataset(ucf101 / "UCF-101", read_ucf101(lists, train=False, fold=2))
    assert labels_by_name(test) == {"v_Archery_g08_c01.avi": 1}
    copy = touch_files(ucf101 / "copy", "Archery/v_Archery_g08_c01.mp4")
    assert labels_by_name(AnnotatedDataset(copy, read_ucf101(lists, train=True, fold=1))) == {
        "v_Archery_g08_c01.mp4": 1
    }
    empty = touch_files(ucf101 / "other", "x.mp4")
    with pytest.raises(
        StillmotionError, match="none of the 3 listed videos was found; the first missing one is ApplyE"
    ):
        AnnotatedDataset(empty, read_ucf101(lists, train=True, fold=1))


def test_ucf101_is_recognised_by_its_lists(ucf101: Path) -> None:
    detected = VideoDataConfig(ucf101, split="test").open()
    given_lists = VideoDataConfig(ucf101 / "UCF-101", split="test", annotations=ucf101 / "ucfTrainTestlist").open()
    assert labels_by_name(detected) == labels_by_name(given_lists) == {"v_Archery_g01_c01.avi": 1}
    assert len(VideoDataConfig(ucf101).open()) == 3


@pytest.mark.parametrize("folders", [True, False])
def test_hmdb51_takes_1_for_training_and_2_for_test(tmp_path: Path, folders: bool) -> None:
    videos, lists = tmp_path / "hmdb51", tmp_path / "testTrainMulti_7030_splits"
    for name in ("wave_1", "wave_2", "wave_0"):
        touch_files(videos, f"{'wave/' if folders else ''}{name}.avi")
    touch_files(videos, f"{'run/' if folders else ''}run_1.avi")
    lists.mkdir()
    (lists / "wave_test_split1.txt").write_text("wave_1.avi 1 \nwave_2.avi 2 \nwave_0.avi 0 \n")
    (lists / "run_test_split1.txt").write_text("run_1.avi 1 \n")
    train = AnnotatedDataset(videos, read_hmdb51(lists, train=True, fold=1))
    assert labels_by_name(train) == {"run_1.avi": 0, "wave_1.avi": 1}
    test = VideoDataConfig(videos, split="test", annotations=lists).open()
    assert labels_by_name(test) == {"wave_2.avi": 1}
    with pytest.raises(StillmotionError, match="splits are 1 to 3"):
        read_hmdb51(lists, train=True, fold=7)


def test_kinetics_finds_timed_names_in_class_folders_or_flat(tmp_path: Path) -> None:
    header = "label,youtube_id,time_start,time_end,split\n"
    rows = "air drumming,-AbC_1,3,13,train\nabseiling,xyz,120,130,train\nabseiling,gone,1,11,train\nzumba,v,0,10,val\n"
    (tmp_path / "train.csv").write_text(header + rows)
    videos = touch_files(tmp_path / "videos", "air_drumming/-AbC_1_000003_000013.mp4", "xyz.mkv", "v_000000_000010.mp4")
    train = AnnotatedDataset(videos, read_kinetics(tmp_path / "train.csv", split="train"))
    assert labels_by_name(train) == {"-AbC_1_000003_000013.mp4": 1, "xyz.mkv": 0}
    assert train.missing_videos == ["gone_000001_000011"]
    assert train.classes["class"] == ["abseiling", "air drumming", "zumba"]
    val = VideoDataConfig(videos, annotations=tmp_path / "train.csv", split="val").open()
    assert labels_by_name(val) == {"v_000000_000010.mp4": 2}


def test_kinetics_in_slowfast_form_is_a_list(tmp_path: Path) -> None:
    touch_files(tmp_path, "a_000003_000013.mp4")
    (tmp_path / "train.csv").write_text(f"{tmp_path}/a_000003_000013.mp4 17\n")
    assert labels_by_name(VideoDataConfig(tmp_path / "train.csv").open()) == {"a_000003_000013.mp4": 17}


def test_ssv2_reads_templates_and_allows_unlabelled_test_videos(tmp_path: Path) -> None:
    videos = touch_files(tmp_path / "videos", "74225.webm", "9.webm")
    lists = tmp_path / "lists"
    lists.mkdir()
    prefix = "something-something-v2"
    labels = {"Closing something": "1", "Putting something on something": "0"}
    (lists / f"{prefix}-labels.json").write_text(json.dumps(labels))
    item = {"id": "74225", "label": "putting a cup on a box", "template": "Putting [something] on [something]"}
    (lists / f"{prefix}-validation.json").write_text(json.dumps([item]))
    (lists / f"{prefix}-test.json").write_text(json.dumps([{"id": "9"}]))
    dataset = AnnotatedDataset(videos, read_ssv2(lists / f"{prefix}-labels.json", lists / f"{prefix}-validation.json"))
    assert labels_by_name(dataset) == {"74225.webm": 0}
    assert dataset.classes["class"] == ["Putting something on something", "Closing something"]
    assert labels_by_name(VideoDataConfig(videos, annotations=lists, split="val").open()) == {"74225.webm": 0}
    assert labels_by_name(VideoDataConfig(videos, annotations=lists, split="test").open()) == {"9.webm": -1}


def gym99(root: Path) -> Path:
    touch_files(root / "subactions", "A0x_E_002184_002237_A_0035_0036.mp4", "A0x_E_1_2_A_0003_0004.mp4")
    lists = root / "annotations"
    lists.mkdir()
    (lists / "gym99_train_element_v1.0.txt").write_text("an_older_list 1\n")
    (lists / "gym99_train_element_v1.1.txt").write_text("A0x_E_002184_002237_A_0035_0036 1\ngone_E_1_2_A_1_2 0\n")
    (lists / "gym99_val_element.txt").write_text("A0x_E_1_2_A_0003_0004 0\n")
    return root


def test_gym99_takes_the_newest_list_and_names_classes_where_it_can(tmp_path: Path) -> None:
    train = VideoDataConfig(gym99(tmp_path), split="train").open()
    assert labels_by_name(train) == {"A0x_E_002184_002237_A_0035_0036.mp4": 1}
    assert train.missing_videos == ["gone_E_1_2_A_1_2"]
    assert train.classes["class"] == ["0", "1"]
    (tmp_path / "annotations" / "gym99_categories.txt").write_text(
        "Clabel: 0; set: 1; Glabel: 1; (VT) round-off\nClabel: 1; set: 1; Glabel: 2; (FX) split leap\n"
    )
    file = tmp_path / "annotations" / "gym99_val_element.txt"
    dataset = VideoDataConfig(tmp_path / "subactions", annotations=file).open()
    assert dataset.classes["class"] == ["(VT) round-off", "(FX) split leap"]
    assert len(dataset) == 2
    assert len(VideoDataConfig(tmp_path, layout="gym99", split="val").open()) == 1


def test_diving48_reads_its_json_and_joins_the_parts_of_a_dive(tmp_path: Path) -> None:
    touch_files(tmp_path / "rgb", "8qRm_00016.mp4", "CVAf_00038.mp4")
    (tmp_path / "Diving48_vocab.json").write_text(
        '[["Back", "15som", "05Twis", "FREE"], ["Back", "15som", "NoTwis", "PIKE"]]'
    )
    for name, video, label in (("train", "8qRm_00016", 1), ("test", "CVAf_00038", 0)):
        item = {"vid_name": video, "label": label, "start_frame": 0, "end_frame": 78}
        (tmp_path / f"Diving48_V2_{name}.json").write_text(json.dumps([item]))
    dataset = VideoDataConfig(tmp_path).open()
    assert labels_by_name(dataset) == {"8qRm_00016.mp4": 1, "CVAf_00038.mp4": 0}
    assert dataset.classes["class"] == ["Back+15som+05Twis+FREE", "Back+15som+NoTwis+PIKE"]
    test = VideoDataConfig(tmp_path / "rgb", layout="diving48", split="test").open()
    assert labels_by_name(test) == {"CVAf_00038.mp4": 0}
    (tmp_path / "Diving48_V2_train.json").unlink()
    with pytest.raises(StillmotionError, match=r"no file matches Diving48\*train.json"):
        VideoDataConfig(tmp_path, split="train").open()
