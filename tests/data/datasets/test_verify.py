"""`stillmotion data verify` on each published layout in miniature."""

import json
from pathlib import Path

import pytest
from support.davis_like import write_davis, write_jhmdb, write_vip
from support.numbered_videos import write_numbered_video
from support.progress import record_progress

from stillmotion.data.datasets import expected_files
from stillmotion.data.datasets.verify import VerificationReport, format_verification, verify_dataset
from stillmotion.errors import StillmotionError


def videos(root: Path, *names: str) -> None:
    for name in names:
        write_numbered_video(root / name, num_frames=3, size=(16, 16))


def write(root: Path, files: dict[str, object]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content if isinstance(content, str) else json.dumps(content))


def summarize_report(report: VerificationReport) -> tuple[int, int, list[str], list[str], list[str]]:
    return (
        report.num_listed,
        report.num_found,
        report.missing_classes,
        report.missing_files,
        [name for name, _ in report.unreadable],
    )


@pytest.fixture
def ucf101(tmp_path: Path) -> Path:
    videos(tmp_path / "UCF-101", "Archery/v_Archery_g01_c01.avi", "Archery/v_Archery_g08_c01.avi")
    lists = {
        "classInd.txt": "1 ApplyLipstick\r\n2 Archery\r\n3 Biking\r\n",
        "trainlist01.txt": "ApplyLipstick/v_ApplyLipstick_g08_c01.avi 1\r\nArchery/v_Archery_g08_c01.avi 2\r\n",
        "testlist01.txt": "Archery/v_Archery_g01_c01.avi\r\nBiking/v_Biking_g01_c01.avi\r\n",
        "trainlist02.txt": "Biking/v_Biking_g01_c01.avi 3\r\nArchery/v_Archery_g01_c01.avi 2\r\n",
        "testlist02.txt": "Archery/v_Archery_g08_c01.avi\r\n",
    }
    write(tmp_path / "ucfTrainTestlist", lists)  # type: ignore[arg-type]
    return tmp_path


def test_a_class_without_videos_is_reported_as_a_class(ucf101: Path) -> None:
    report = verify_dataset("ucf101", ucf101 / "UCF-101", annotations=ucf101 / "ucfTrainTestlist")
    assert (
        summarize_report(report)
        == summarize_report(verify_dataset("ucf101", ucf101))
        == (4, 2, ["ApplyLipstick", "Biking"], [], [])
    )
    assert not report.is_complete
    lines = format_verification(report)
    assert lines[0].endswith("Found 2 of 4 listed videos")
    assert "trainlist01.txt names 2 videos; the official list names 9,537" in lines
    assert "trainlist03.txt does not exist; its videos were not checked" in lines
    assert lines[-3:] == ["2 of 3 classes have no video:", "  ApplyLipstick", "  Biking"]


def test_single_missing_videos_are_reported_by_name(ucf101: Path) -> None:
    (ucf101 / "UCF-101" / "Archery" / "v_Archery_g01_c01.avi").write_bytes(b"torn")
    videos(ucf101 / "UCF-101", "Biking/v_Biking_g01_c01.avi")
    (ucf101 / "ucfTrainTestlist" / "testlist02.txt").write_text("Biking/v_Biking_g08_c01.avi\n")
    report = verify_dataset("ucf101", ucf101)
    assert summarize_report(report)[2:] == (
        ["ApplyLipstick"],
        ["Biking/v_Biking_g08_c01"],
        ["Archery/v_Archery_g01_c01"],
    )
    assert "cannot be decoded" in report.unreadable[0][1]


def test_processes_find_what_one_finds(ucf101: Path) -> None:
    videos(ucf101 / "UCF-101", *(f"Archery/v_Archery_g09_c{i:02d}.avi" for i in range(20)))
    (ucf101 / "UCF-101" / "Archery" / "v_Archery_g09_c07.avi").write_bytes(b"")
    more = "".join(f"Archery/v_Archery_g09_c{i:02d}.avi 2\n" for i in range(20))
    (ucf101 / "ucfTrainTestlist" / "trainlist03.txt").write_text(more)
    with record_progress() as progress:
        report = verify_dataset("ucf101", ucf101, num_workers=2)
    assert report == verify_dataset("ucf101", ucf101)
    assert [name for name, _ in report.unreadable] == ["Archery/v_Archery_g09_c07"]
    assert progress[-1] == (22, 22)


def test_hmdb51_counts_unused_videos_too(tmp_path: Path) -> None:
    videos(tmp_path, "wave/a_wave_1.avi", "wave/a_wave_0.avi")
    write(tmp_path / "splits", {"wave_test_split1.txt": "a_wave_1.avi 1 \na_wave_0.avi 0 \na_wave_2.avi 2 \n"})
    assert summarize_report(verify_dataset("hmdb51", tmp_path)) == (3, 2, [], ["wave/a_wave_2"], [])


def test_kinetics_goes_by_csv_by_list_or_by_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "label,youtube_id,time_start,time_end,split\n"
    rows = "abseiling,xyz,120,130,train\nabseiling,gone,1,11,train\nzumba,v,0,10,val\n"
    videos(tmp_path / "train", "abseiling/xyz_000120_000130.mp4")
    write(tmp_path, {"k400.csv": header + rows})
    assert summarize_report(verify_dataset("kinetics", tmp_path)) == (3, 1, ["zumba"], ["gone_000001_000011"], [])
    (tmp_path / "k400.csv").write_text("train/abseiling/xyz_000120_000130.mp4 0\ntrain/zumba/v.mp4 1\n")
    assert summarize_report(verify_dataset("kinetics", tmp_path))[:3] == (2, 1, ["1"])
    (tmp_path / "k400.csv").unlink()
    (missing,) = verify_dataset("kinetics", tmp_path).missing_files
    assert missing.startswith("1 of 400 class folders in ")
    monkeypatch.setattr(expected_files, "_KINETICS_CLASSES", (1,))
    assert verify_dataset("kinetics", tmp_path).is_complete


def test_ssv2_names_videos_without_label_one_by_one(tmp_path: Path) -> None:
    videos(tmp_path / "videos", "1.webm.mp4", "2.mp4")
    (tmp_path / "videos" / "1.webm.mp4").rename(tmp_path / "videos" / "1.mp4")
    prefix = "lists/something-something-v2"
    write(
        tmp_path,
        {
            f"{prefix}-labels.json": {"Closing something": "0", "Opening something": "1"},
            f"{prefix}-train.json": [{"id": "1", "template": "Closing [something]"}],
            f"{prefix}-validation.json": [{"id": "3", "template": "Opening [something]"}],
            f"{prefix}-test.json": [{"id": "2"}, {"id": "4"}],
        },
    )
    assert summarize_report(verify_dataset("ssv2", tmp_path)) == (4, 2, ["Opening something"], ["4"], [])


def test_gym99_and_diving48_go_by_their_two_lists(tmp_path: Path) -> None:
    gym, diving = tmp_path / "gym", tmp_path / "diving"
    videos(gym, "A0x_E_1_2_A_0003_0004.mp4")
    write(gym, {"gym99_train_element_v1.1.txt": "A0x_E_1_2_A_0003_0004 1\nB_E_1_2_A_3_4 1\nC_E_1_2_A_3_4 0\n"})
    report = verify_dataset("gym99", gym)
    assert summarize_report(report) == (3, 1, ["0"], ["B_E_1_2_A_3_4"], [])
    assert "gym99_val_element.txt does not exist; its videos were not checked" in report.remarks
    videos(diving, "rgb/8qRm_00016.mp4")
    item = {"vid_name": "8qRm_00016", "label": 0, "start_frame": 0, "end_frame": 78}
    write(diving, {"Diving48_vocab.json": [["Back", "15som", "05Twis", "FREE"]], "Diving48_V2_test.json": [item]})
    assert verify_dataset("diving48", diving).is_complete


def test_ava_takes_videos_or_folders_of_frames(tmp_path: Path) -> None:
    write_davis(tmp_path / "other", ("-5KQ66BBWC4",), num_frames=3)
    frames = tmp_path / "frames" / "-5KQ66BBWC4"
    frames.parent.mkdir()
    (tmp_path / "other" / "JPEGImages" / "48p" / "-5KQ66BBWC4").rename(frames)
    videos(tmp_path / "videos", "1j20qq1JyX4.mp4")
    line = "0902,0.077,0.151,0.283,0.811,80,1\n"
    write(
        tmp_path / "annotations",
        {"ava_train_v2.2.csv": f"-5KQ66BBWC4,{line}" * 2, "ava_val_v2.2.csv": f"1j20qq1JyX4,{line}gone,{line}"},
    )
    assert summarize_report(verify_dataset("ava", tmp_path)) == (3, 2, [], ["gone"], [])


def test_davis_and_vip_need_masks_beside_frames(tmp_path: Path) -> None:
    davis = write_davis(tmp_path / "davis", ("bear", "camel"), num_frames=3)
    vip = write_vip(tmp_path / "vip", num_frames=3)
    assert verify_dataset("davis", davis).is_complete
    assert verify_dataset("vip", vip).is_complete
    (davis / "ImageSets" / "2017" / "train.txt").write_text("bear\nswing\n")
    (davis / "Annotations" / "48p" / "camel" / "00000.png").unlink()
    report = verify_dataset("davis", davis)
    assert summarize_report(report) == (3, 2, [], ["swing"], ["camel"])
    assert "no mask for the first frame" in report.unreadable[0][1]


def test_jhmdb_needs_joints_beside_frames(tmp_path: Path) -> None:
    root = write_jhmdb(tmp_path, num_frames=3)
    assert summarize_report(verify_dataset("jhmdb", root)) == (2, 1, [], ["wave/you"], [])
    (root / "splits" / "jump_test_split1.txt").write_text("a.avi 1\nb.avi 2\n")
    (root / "joint_positions" / "wave" / "me" / "joint_positions.mat").write_bytes(b"torn")
    assert summarize_report(verify_dataset("jhmdb", root))[2:] == (["jump"], ["wave/you"], ["wave/me"])
    (root / "joint_positions" / "wave" / "me" / "joint_positions.mat").unlink()
    assert verify_dataset("jhmdb", root).missing_files[-1].endswith("wave/me/joint_positions.mat")


def test_breakfast_finds_its_own_folders_and_needs_frame_labels(tmp_path: Path) -> None:
    folder = tmp_path / "BreakfastII_15fps_qvga_sync" / "P03"
    videos(folder, "cam01/P03_milk.avi", "cam02/P03_milk.avi", "stereo/P03_milk_ch0.avi")
    names = ["P03_cam01_P03_milk", "P03_cam02_P03_milk", "P03_stereo01_P03_milk", "P04_cam01_P04_tea"]
    write(
        tmp_path,
        {
            "splits/train.split1.bundle": "#bundle\n"
            + "".join(f"./data/groundTruth/{name}.txt\n" for name in names[:2]),
            "splits/test.split1.bundle": "".join(f"{name}.txt\n" for name in names[2:]),
            **{f"groundTruth/{name}.txt": "SIL\npour_milk\n" for name in names[1:3]},
        },
    )
    report = verify_dataset("breakfast", tmp_path)
    assert (report.num_listed, report.num_found) == (4, 3)
    assert report.missing_files == ["P04_cam01_P04_tea", str(tmp_path / "groundTruth" / "P03_cam01_P03_milk.txt")]
    assert report.unreadable == []


def test_many_names_are_cut_short(ucf101: Path) -> None:
    more = "".join(f"Archery/v_Archery_g10_c{i:02d}.avi 2\n" for i in range(30))
    (ucf101 / "ucfTrainTestlist" / "trainlist03.txt").write_text(more)
    lines = format_verification(verify_dataset("ucf101", ucf101), max_names=4)
    assert lines[-6:-1] == ["30 missing:", *(f"  Archery/v_Archery_g10_c{i:02d}" for i in range(4))]
    assert lines[-1] == "  and 26 more (--failures-file FILE writes all)"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("k200", {}, "no data set 'k200' to verify"),
        ("ava", {}, "no list of the videos of ava. Give the folder"),
        ("ava", {"num_workers": 0}, "num_workers is 0"),
    ],
)
def test_mistakes_name_the_remedy(tmp_path: Path, name: str, options: dict, message: str) -> None:
    videos(tmp_path, "a.mp4")
    with pytest.raises(StillmotionError, match=message):
        verify_dataset(name, tmp_path, **options)
