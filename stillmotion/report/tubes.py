"""`stillmotion explain --class`: where encoders look for a class, side by side (ViDiDi, Figures 4 and 10 to 14)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.clips import at_rate
from stillmotion.data.video import Video
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, Progress
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.outputs import read_by, spare_folder
from stillmotion.evaluate.told import readable, skipped
from stillmotion.explain.cam import enlarged, last_map, tube_of_map
from stillmotion.explain.figure import save_picture
from stillmotion.explain.inside import middle_clip, prepared, squares
from stillmotion.explain.overlay import between, filmstrip, overlay, side_by_side, unit_heat, write_video
from stillmotion.explain.rows import Rows, class_rows
from stillmotion.files import locked, made, write_json
from stillmotion.report.blocks import Block, Movie, Picture, Section, Table, Text
from stillmotion.report.inside import data_uri, webp_uri
from stillmotion.report.page import write_page

RESULTS = "tubes.json"
_PANEL = 224
_DPI = 150
_NAME = 22  # letters of an encoder's name that stand beside a filmstrip
_TOLD = (
    "How far each place speaks for {name}: the last feature map times the classifier's row of that class, summed over "
    "channels and enlarged to the clip, from its smallest values (dark) to its largest. Each row is scaled to its own "
    "values: it tells where and when, not how much."
)


def explain_class(
    encoders: Sequence[Encoder],
    video: str | Path,
    out: str | Path,
    *,
    name: str,
    labelled: str | None = None,
    videos: int = 8,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Saliency tubes of a class for each encoder: write pictures, `tubes.json` and `report.html`, return the results.

    encoders: all are shown the clips that the first one takes.
    video, videos: as for `explain`. name, labelled: as for `class_rows`.
    """
    if videos < 1:
        raise StillmotionError(f"videos is {videos}; it must be at least 1 (--videos)")
    first, given = encoders[0], Videos(str(video))
    found = given.open(drawn=first.drawn, seed=first.seed)
    spare_folder(out, read_by(given, videos=found, encoders=encoders, also=[labelled]))
    clips = {option: getattr(first.intake, option) for option in ("frames", "stride", "size", "fps")}
    alike = {short: encoder.shown(**clips) for short, encoder in zip(_names(encoders), encoders, strict=True)}
    rows = {short: class_rows(encoder, name, labelled) for short, encoder in alike.items()}
    chosen = np.unique(np.linspace(0, len(found) - 1, videos).round().astype(int)).tolist()
    shown: list[dict[str, Any]] = []
    broken: dict[str, str] = {}
    with locked(out):
        folder = made(out, mark=True)
        for done, index in enumerate(chosen):
            try:
                opened = at_rate(found.video(index), first.intake.fps)
                entry = _looked(alike, rows, opened, found.name(index), name, folder, f"{done + 1:02d}")
                shown.append(entry)
            except VideoError as error:
                broken[found.name(index)] = str(error)
            if progress is not None:
                progress(done + 1, len(chosen))
        if not shown:
            first_reason = next(iter(broken.values()))
            raise StillmotionError(f"none of the {len(chosen)} videos can be shown; the first: {first_reason}")
        for line in skipped(broken, what=f"of {len(chosen)} videos are not shown"):
            say(line)
        results = {
            "class": name,
            "encoders": {
                short: {"encoder": encoder.origin.text, "rows": rows[short].whose} for short, encoder in alike.items()
            },
            **clips,
            "videos": shown,
            "broken": broken,
        }
        write_json(folder / RESULTS, results)
        write_page(folder / "report.html", f"Where {name} is seen", _sections(folder, results))
    return results


def _looked(
    encoders: Mapping[str, Encoder],
    rows: Mapping[str, Rows],
    video: Video,
    called: str,
    name: str,
    folder: Path,
    stem: str,
) -> dict[str, Any]:
    """The tubes of one video's middle clip, written as a filmstrip and a film, and what each classifier says of it."""
    intake = next(iter(encoders.values())).intake
    numbers = middle_clip(len(video), intake, name=called, second=False)
    heat: dict[str, np.ndarray] = {}
    said: dict[str, Any] = {}
    for short, encoder in encoders.items():
        (clip,) = prepared(video, numbers, encoder.intake)
        features = last_map(encoder, clip)
        tube = tube_of_map(features, rows[short].of(name))
        heat[short] = unit_heat(enlarged(tube, clip).numpy(), signed=True)
        chances = rows[short].probabilities(features.mean((2, 3)).T.cpu())
        likeliest = int(chances.argmax())
        classes = rows[short].classes
        said[short] = {
            "probability": float(chances[classes.index(name)]),
            "taken for": classes[likeliest],
            "its probability": float(chances[likeliest]),
        }
    clip_numbers = numbers[0].tolist()
    moving = squares(video, range(clip_numbers[0], clip_numbers[-1] + 1), intake, side=_PANEL)
    strip, film = folder / f"tubes-{stem}.png", folder / f"tubes-{stem}.mp4"
    still = moving[numbers[0] - clip_numbers[0]]
    save_picture(filmstrip(still, heat, numbers=clip_numbers), strip, dpi=_DPI)
    panels = {short: overlay(moving, between(values, clip_numbers)) for short, values in heat.items()}
    write_video(film, side_by_side({"video": moving} | panels), fps=video.fps)
    return {"name": called, "clip": clip_numbers, "said": said, "filmstrip": strip.name, "video": film.name}


def _names(encoders: Sequence[Encoder]) -> list[str]:
    """A short name for each, with a number where two are alike."""
    names: list[str] = []
    for encoder in encoders:
        short = readable(encoder.name)[-_NAME:]
        again = sum(name.partition(" (")[0] == short for name in names)
        names.append(f"{short} ({again + 1})" if again else short)
    return names


def _sections(folder: Path, results: Mapping[str, Any]) -> list[Section]:
    clip = f"{results['frames']} frames at stride {results['stride']}, {results['size']} px"
    told = (
        f"The middle clip ({clip}) of each video, as each encoder sees it. Probabilities are those of the "
        f"classifier whose row of {results['class']} is shown."
    )
    looked: list[Block] = [
        Text(told),
        Table(["", "encoder", "classifier"], [[s, of["encoder"], of["rows"]] for s, of in results["encoders"].items()]),
        Table(
            ["video", *(f"{short}: {results['class']}, likeliest" for short in results["encoders"])],
            [
                [Path(entry["name"]).name]
                + [
                    f"{of['probability']:.3f}, {of['taken for']} ({of['its probability']:.3f})"
                    for of in entry["said"].values()
                ]
                for entry in results["videos"]
            ],
        ),
    ]
    if results["broken"]:
        looked.append(Text(f"Not shown: {'; '.join(results['broken'].values())}."))
    sections = [Section("What was looked at", looked)]
    for entry in results["videos"]:
        name = Path(entry["name"]).name
        film = data_uri((folder / entry["video"]).read_bytes(), "video/mp4")
        blocks: list[Block] = [
            Movie(film, f"{name}, frame by frame"),
            Picture(webp_uri(folder / entry["filmstrip"]), _TOLD.format(name=results["class"])),
        ]
        sections.append(Section(f"Saliency tubes: {name}", blocks))
    return sections
