"""`stillmotion explain --class-name`: saliency tubes of a class for several encoders (ViDiDi, Figures 4, 10 to 14)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.video.reader import VideoReader
from stillmotion.encoders import Encoder
from stillmotion.explain.class_weights import ClassWeights, load_class_weights
from stillmotion.explain.clip_analysis import load_clips, middle_clip_indices
from stillmotion.explain.explain_videos import VideoExplanation, explain_each, open_videos
from stillmotion.explain.heatmap_overlay import normalize_heatmap
from stillmotion.explain.report import describe_clip, failed_blocks, saliency_section
from stillmotion.explain.saliency import last_feature_map, saliency_tube, upsample_to_clip
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, Section, Table, Text
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import write_json
from stillmotion.utils.formatting import printable_name

RESULTS_FILE = "class_saliency.json"
_MAX_NAME_LENGTH = 22  # characters of an encoder's name beside a filmstrip
_TUBES_CAPTION = (
    "Saliency tubes for {name}: the last feature map weighted by the classifier's weights for that class, summed over "
    "channels and upsampled to the clip. Each row is scaled to its own range, so compare positions and times, not "
    "strength."
)


def explain_class(
    encoders: Sequence[Encoder],
    path: str | Path,
    output_dir: str | Path,
    *,
    class_name: str,
    probe_data: str | None = None,
    max_videos: int = 8,
) -> dict[str, Any]:
    """Compute saliency tubes of a class: write overlays, `class_saliency.json` and `report.html`.

    Args:
        encoders: Encoders to compare; all of them get the clips of the first one.
        path: Video file, folder of videos, or "synthetic" for the videos of the first encoder's run.
        output_dir: Folder to write to.
        class_name: Name of the class.
        probe_data: Labeled videos to train a linear probe on, for encoders without a classifier.
        max_videos: Number of videos of a folder to explain, evenly spaced.

    Returns:
        The results.
    """
    dataset = open_videos(encoders, path, output_dir, max_videos=max_videos, extra_paths=[probe_data])
    input_config = encoders[0].input_config
    options = {name: getattr(input_config, name) for name in ("num_frames", "stride", "image_size", "fps")}
    by_name = {name: e.with_input(**options) for name, e in zip(_short_names(encoders), encoders, strict=True)}
    weights = {name: load_class_weights(encoder, class_name, probe_data) for name, encoder in by_name.items()}

    def analyze(video: VideoReader, name: str) -> VideoExplanation:
        return _analyze(by_name, weights, video, name, class_name)

    with lock_dir(output_dir):
        videos, failed = explain_each(dataset, output_dir, input_config, analyze, max_videos=max_videos)
        sources = {
            name: {"encoder": encoder.origin.spec, "weights_source": weights[name].source}
            for name, encoder in by_name.items()
        }
        results = {"class": class_name, "encoders": sources, **options, "videos": videos, "failed": failed}
        write_json(Path(output_dir) / RESULTS_FILE, results)
        sections = _sections(Path(output_dir), results)
        write_page(Path(output_dir) / "report.html", f"Saliency for class {class_name}", sections)
    return results


def _analyze(
    encoders: Mapping[str, Encoder],
    weights: Mapping[str, ClassWeights],
    video: VideoReader,
    video_name: str,
    class_name: str,
) -> VideoExplanation:
    """Compute the tubes of a video's middle clip, and the class probabilities of each classifier."""
    input_config = next(iter(encoders.values())).input_config
    indices = middle_clip_indices(len(video), input_config, name=video_name, with_first_clip=False)
    heatmaps: dict[str, np.ndarray] = {}
    predictions: dict[str, Any] = {}
    for name, encoder in encoders.items():
        (clip,) = load_clips(video, indices, encoder.input_config)
        features = last_feature_map(encoder, clip)
        tube = saliency_tube(features, weights[name].for_class(class_name))
        heatmaps[name] = normalize_heatmap(upsample_to_clip(tube, clip).numpy(), signed=True)
        probabilities = weights[name].predict_proba(features.mean((2, 3)).T.cpu())
        classes, top = weights[name].class_names, int(probabilities.argmax())
        predictions[name] = {
            "probability": float(probabilities[classes.index(class_name)]),
            "top_class": classes[top],
            "top_probability": float(probabilities[top]),
        }
    values = {"frame_indices": indices[0].tolist(), "predictions": predictions}
    return VideoExplanation(indices[0], values, {"tubes": heatmaps}, {})


def _short_names(encoders: Sequence[Encoder]) -> list[str]:
    """Return a short name for each encoder; equal names are numbered."""
    names: list[str] = []
    for encoder in encoders:
        short = printable_name(encoder.name)[-_MAX_NAME_LENGTH:]
        count = sum(name.partition(" (")[0] == short for name in names)
        names.append(f"{short} ({count + 1})" if count else short)
    return names


def _sections(folder: Path, results: Mapping[str, Any]) -> list[Section]:
    class_name = results["class"]
    intro = (
        f"The middle clip of each video ({describe_clip(results)}). Probabilities are those of the classifier whose "
        f"weights for {class_name} are shown."
    )
    rows = [
        [Path(video["name"]).name]
        + [
            f"{prediction['probability']:.3f}, {prediction['top_class']} ({prediction['top_probability']:.3f})"
            for prediction in video["predictions"].values()
        ]
        for video in results["videos"]
    ]
    sources = [[name, source["encoder"], source["weights_source"]] for name, source in results["encoders"].items()]
    settings: list[Block] = [
        Text(intro),
        Table(["name", "encoder", "classifier"], sources),
        Table(["video", *(f"{name}: P({class_name}), top class" for name in results["encoders"])], rows),
        *failed_blocks(results),
    ]
    sections = [Section("Settings", settings)]
    for video in results["videos"]:
        name = Path(video["name"]).name
        caption = _TUBES_CAPTION.format(name=class_name)
        sections.append(saliency_section(folder, video["files"]["tubes"], f"Saliency tubes: {name}", name, caption))
    return sections
