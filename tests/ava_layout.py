"""Miniature copies of AVA with its own file names and formats: drawn actors in videos that begin at second 900."""

import cv2

from stillmotion.data.acting import CLASSES, ActingConfig, ActingSet
from stillmotion.data.encode import write_mp4

START = 900
LABEL_MAP = "ava_action_list_v2.2_for_activitynet_2019.pbtxt"


def write_ava(root, *, videos=4, size=32, persons=True, frames=False):
    """Writes videos (or folders of frames) and annotations; returns the sets they were drawn as, train and val."""
    config = ActingConfig(videos=videos, tests=videos, seconds=5, size=size)
    notes = root / "annotations"
    notes.mkdir(parents=True)
    items = "".join(f'item {{\n  name: "{name}"\n  id: {number}\n}}\n' for number, name in CLASSES.items())
    (notes / LABEL_MAP).write_text(items)
    drawn = {}
    for split, train in (("train", True), ("val", False)):
        drawn[split] = one = ActingSet(config, train=train, score=0.0)
        for i, name in enumerate(dict.fromkeys(video for video, _ in one.truth.keys)):
            _write_video(root, name, one._video(i), frames=frames)
        _write_rows(notes / f"ava_{split}_v2.2.csv", one.truth, "{action},{person}")
        (notes / f"ava_{split}_excluded_timestamps_v2.2.csv").write_text(f"{one.truth.keys[0][0]},0901\n")
        if persons:
            # For training any boxes do, so that those of the test serve.
            boxes = one.frames if not train else ActingSet(config, train=False, score=0.0).frames
            _write_persons(notes / f"ava_{split}_predicted_boxes.csv", boxes, split)
    return drawn


def _write_video(root, name, video, *, frames):
    shown = video.frames(range(len(video)))
    if frames:
        folder = root / "frames" / name
        folder.mkdir(parents=True)
        (folder / "fps.txt").write_text(f"{video.fps}")
        for number, frame in enumerate(shown, 1):
            cv2.imwrite(str(folder / f"{name}_{number:06d}.png"), frame[..., ::-1])
    else:
        (root / "videos").mkdir(exist_ok=True)
        write_mp4(root / "videos" / f"{name}.mp4", shown, size=shown.shape[1:3], fps=video.fps, gop=8)


def _write_rows(file, rows, end):
    with file.open("w") as out:
        for i, ((video, second), box, action) in enumerate(zip(rows.keys, rows.boxes, rows.actions, strict=True)):
            corners = ",".join(f"{value:.3f}" for value in box)
            out.write(f"{video},{START + second:04d},{corners},{end.format(action=action, person=i)}\n")


def _write_persons(file, frames, split):
    with file.open("w") as out:
        for i, (video, second) in enumerate(frames.keys):
            for number, box in enumerate(frames[i][0]):
                corners = ",".join(f"{value:.3f}" for value in box)
                name = video.replace("test", "train") if split == "train" else video
                out.write(f"{name},{START + second:04d},{corners},,{0.95 if number else 0.5:.6f}\n")
