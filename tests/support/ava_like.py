"""Miniature copies of AVA with its own file names and formats: synthetic actors in videos that start at second 900."""

import cv2

from stillmotion.data.synthetic.ava import SYNTHETIC_ACTIONS, SyntheticAVAConfig, SyntheticAVADataset
from stillmotion.data.video.writer import write_mp4

START_SECOND = 900
LABEL_MAP = "ava_action_list_v2.2_for_activitynet_2019.pbtxt"


def write_ava(root, *, num_videos=4, image_size=32, with_person_boxes=True, as_frames=False):
    """Write videos (or folders of frames) and annotations; returns the synthetic data sets by split."""
    config = SyntheticAVAConfig(num_train=num_videos, num_test=num_videos, seconds=5, image_size=image_size)
    annotations = root / "annotations"
    annotations.mkdir(parents=True)
    items = "".join(f'item {{\n  name: "{name}"\n  id: {number}\n}}\n' for number, name in SYNTHETIC_ACTIONS.items())
    (annotations / LABEL_MAP).write_text(items)
    datasets = {}
    for split, train in (("train", True), ("val", False)):
        datasets[split] = dataset = SyntheticAVADataset(config, train=train, min_score=0.0)
        for i, name in enumerate(dict.fromkeys(video for video, _ in dataset.annotated_boxes.keyframes)):
            _write_video(root, name, dataset._build_video(i), as_frames=as_frames)
        _write_rows(annotations / f"ava_{split}_v2.2.csv", dataset.annotated_boxes, "{action},{person}")
        (annotations / f"ava_{split}_excluded_timestamps_v2.2.csv").write_text(
            f"{dataset.annotated_boxes.keyframes[0][0]},0901\n"
        )
        if with_person_boxes:
            # Training accepts any person boxes, so those of the test set are used.
            boxes = (
                dataset.keyframes if not train else SyntheticAVADataset(config, train=False, min_score=0.0).keyframes
            )
            _write_persons(annotations / f"ava_{split}_predicted_boxes.csv", boxes, split)
    return datasets


def _write_video(root, name, video, *, as_frames):
    frames = video.get_frames(range(len(video)))
    if as_frames:
        folder = root / "frames" / name
        folder.mkdir(parents=True)
        (folder / "fps.txt").write_text(f"{video.fps}")
        for number, frame in enumerate(frames, 1):
            cv2.imwrite(str(folder / f"{name}_{number:06d}.png"), frame[..., ::-1])
    else:
        (root / "videos").mkdir(exist_ok=True)
        write_mp4(root / "videos" / f"{name}.mp4", frames, size=frames.shape[1:3], fps=video.fps, gop_size=8)


def _write_rows(file, rows, end):
    with file.open("w") as out:
        for i, ((video, second), box, action) in enumerate(zip(rows.keyframes, rows.boxes, rows.actions, strict=True)):
            corners = ",".join(f"{value:.3f}" for value in box)
            out.write(f"{video},{START_SECOND + second:04d},{corners},{end.format(action=action, person=i)}\n")


def _write_persons(file, frames, split):
    with file.open("w") as out:
        for i, (video, second) in enumerate(frames.keyframes):
            for number, box in enumerate(frames[i][0]):
                corners = ",".join(f"{value:.3f}" for value in box)
                name = video.replace("test", "train") if split == "train" else video
                out.write(f"{name},{START_SECOND + second:04d},{corners},,{0.95 if number else 0.5:.6f}\n")
