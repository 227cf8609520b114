"""`stillmotion explain --class-name`: where encoders look for a class, side by side (ViDiDi, Figures 4 and 10 to 14)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.video.reader import VideoReader, resample_fps
from stillmotion.data.video.writer import write_video
from stillmotion.encoders import Encoder, ProgressCallback
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError, VideoError, raise_if_none_readable
from stillmotion.explain.class_weights import ClassWeights, load_class_weights
from stillmotion.explain.clip_analysis import center_crops_for_display, load_clips, middle_clip_indices
from stillmotion.explain.heatmap_overlay import filmstrip, interpolate_heatmaps, normalize_heatmap, overlay_heatmap
from stillmotion.explain.saliency import last_feature_map, saliency_tube, upsample_to_clip
from stillmotion.report.blocks import Block, ImageBlock, Section, Table, Text, VideoBlock
from stillmotion.report.images import concat_panels, data_uri, image_file_uri
from stillmotion.report.page import write_page
from stillmotion.report.plot_style import save_figure
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import ensure_dir, write_json
from stillmotion.utils.formatting import format_failed_videos, printable_name

RESULTS_FILE = "class_saliency.json"
_PANEL_SIZE = 224
_DPI = 150
_MAX_NAME_LENGTH = 22  # letters of an encoder's name that stand beside a filmstrip
_TUBES_CAPTION = (
    "How far each place speaks for {name}: the last feature map times the classifier's row of that class, summed over "
    "channels and enlarged to the clip, from its smallest values (dark) to its largest. Each row is scaled to its own "
    "values: it tells where and when, not how much."
)


def explain_class(
    encoders: Sequence[Encoder],
    path: str | Path,
    output_dir: str | Path,
    *,
    class_name: str,
    probe_data: str | None = None,
    max_videos: int = 8,
    say: Callable[[str], None] = print,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Saliency tubes of a class for each encoder: write pictures, `class_saliency.json` and `report.html`, return the results.

    encoders: all are shown the clips that the first one takes.
    path, max_videos: as for `explain`. name, labelled: as for `class_rows`.
    """
    if max_videos < 1:
        raise StillmotionError(f"videos is {max_videos}; it must be at least 1 (--max-videos)")
    first, given = encoders[0], VideoDataConfig(str(path))
    found = given.open(synthetic=first.synthetic_config, seed=first.seed)
    check_dir_no_overlap(
        output_dir, collect_input_paths(given, dataset=found, encoders=encoders, extra_paths=[probe_data])
    )
    clips = {option: getattr(first.input_config, option) for option in ("num_frames", "stride", "image_size", "fps")}
    alike = {
        short: encoder.with_input(**clips) for short, encoder in zip(_short_names(encoders), encoders, strict=True)
    }
    rows = {short: load_class_weights(encoder, class_name, probe_data) for short, encoder in alike.items()}
    chosen = np.unique(np.linspace(0, len(found) - 1, max_videos).round().astype(int)).tolist()
    shown: list[dict[str, Any]] = []
    broken: dict[str, str] = {}
    with lock_dir(output_dir):
        folder = ensure_dir(output_dir, mark_generated=True)
        for done, index in enumerate(chosen):
            try:
                opened = resample_fps(found.open_video(index), first.input_config.fps)
                entry = _explain_video(alike, rows, opened, found.name(index), class_name, folder, f"{done + 1:02d}")
                shown.append(entry)
            except VideoError as error:
                broken[found.name(index)] = str(error)
            if progress is not None:
                progress(done + 1, len(chosen))
        raise_if_none_readable(broken, len(broken) + len(shown))
        for line in format_failed_videos(broken, noun="video", what=f"of {len(chosen)} not shown"):
            say(line)
        results = {
            "class": class_name,
            "encoders": {
                short: {"encoder": encoder.origin.spec, "weights_source": rows[short].source}
                for short, encoder in alike.items()
            },
            **clips,
            "videos": shown,
            "failed": broken,
        }
        write_json(folder / RESULTS_FILE, results)
        write_page(folder / "report.html", f"Where {class_name} is seen", _sections(folder, results))
    return results


def _explain_video(
    encoders: Mapping[str, Encoder],
    weights: Mapping[str, ClassWeights],
    video: VideoReader,
    video_name: str,
    class_name: str,
    output_dir: Path,
    stem: str,
) -> dict[str, Any]:
    """The tubes of one video's middle clip, written as a filmstrip and a film, and what each classifier says of it."""
    intake = next(iter(encoders.values())).input_config
    numbers = middle_clip_indices(len(video), intake, name=video_name, with_first_clip=False)
    heat: dict[str, np.ndarray] = {}
    said: dict[str, Any] = {}
    for short, encoder in encoders.items():
        (clip,) = load_clips(video, numbers, encoder.input_config)
        features = last_feature_map(encoder, clip)
        tube = saliency_tube(features, weights[short].for_class(class_name))
        heat[short] = normalize_heatmap(upsample_to_clip(tube, clip).numpy(), signed=True)
        chances = weights[short].predict_proba(features.mean((2, 3)).T.cpu())
        likeliest = int(chances.argmax())
        classes = weights[short].class_names
        said[short] = {
            "probability": float(chances[classes.index(class_name)]),
            "top_class": classes[likeliest],
            "top_probability": float(chances[likeliest]),
        }
    clip_numbers = numbers[0].tolist()
    moving = center_crops_for_display(video, range(clip_numbers[0], clip_numbers[-1] + 1), intake, side=_PANEL_SIZE)
    strip, film = output_dir / f"saliency_tubes-{stem}.png", output_dir / f"saliency_tubes-{stem}.mp4"
    still = moving[numbers[0] - clip_numbers[0]]
    save_figure(filmstrip(still, heat, frame_indices=clip_numbers), strip, dpi=_DPI)
    panels = {
        short: overlay_heatmap(moving, interpolate_heatmaps(values, clip_numbers)) for short, values in heat.items()
    }
    write_video(film, concat_panels({"video": moving} | panels), fps=video.fps)
    return {
        "name": video_name,
        "frame_indices": clip_numbers,
        "predictions": said,
        "filmstrip": strip.name,
        "video": film.name,
    }


def _short_names(encoders: Sequence[Encoder]) -> list[str]:
    """A short name for each, with a number where two are alike."""
    names: list[str] = []
    for encoder in encoders:
        short = printable_name(encoder.name)[-_MAX_NAME_LENGTH:]
        again = sum(name.partition(" (")[0] == short for name in names)
        names.append(f"{short} ({again + 1})" if again else short)
    return names


def _sections(folder: Path, results: Mapping[str, Any]) -> list[Section]:
    clip = f"{results['num_frames']} frames at stride {results['stride']}, {results['image_size']} px"
    told = (
        f"The middle clip ({clip}) of each video, as each encoder sees it. Probabilities are those of the "
        f"classifier whose row of {results['class']} is shown."
    )
    looked: list[Block] = [
        Text(told),
        Table(
            ["", "encoder", "classifier"],
            [[s, of["encoder"], of["weights_source"]] for s, of in results["encoders"].items()],
        ),
        Table(
            ["video", *(f"{short}: {results['class']}, likeliest" for short in results["encoders"])],
            [
                [Path(entry["name"]).name]
                + [
                    f"{of['probability']:.3f}, {of['top_class']} ({of['top_probability']:.3f})"
                    for of in entry["predictions"].values()
                ]
                for entry in results["videos"]
            ],
        ),
    ]
    if results["failed"]:
        looked.append(Text(f"Not shown: {'; '.join(results['failed'].values())}."))
    sections = [Section("What was looked at", looked)]
    for entry in results["videos"]:
        name = Path(entry["name"]).name
        film = data_uri((folder / entry["video"]).read_bytes(), "video/mp4")
        blocks: list[Block] = [
            VideoBlock(film, f"{name}, frame by frame"),
            ImageBlock(image_file_uri(folder / entry["filmstrip"]), _TUBES_CAPTION.format(name=results["class"])),
        ]
        sections.append(Section(f"Saliency tubes: {name}", blocks))
    return sections
