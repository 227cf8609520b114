"""The sections of what `stillmotion explain` found, drawn from its `results.json` and the files that it names."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from stillmotion.explain.inside import PARTS
from stillmotion.explain.modes import Modes, mode_amplitudes, mode_plane
from stillmotion.explain.spectrum import eigenvalue_plane, similarity_lags, similarity_matrix
from stillmotion.files import read_json
from stillmotion.report.blocks import Block, Movie, Picture, Section, Table, Text, figures

RESULTS = "results.json"
_MODES = (
    "The eigenvalues of the clip's Koopman operator, and the amplitudes of its strongest modes in the same colours. A "
    "mode whose eigenvalue lies in the green disc of radius ξ about 1 stays as it is: it is static. One on the unit "
    "circle turns without fading; one well inside it fades."
)
_ALIKE = "The cosine between the features of every two frames, and its mean by the frames that lie between them."
_TOLD = {
    "grad-cam": (
        "Grad-CAM",
        "What speaks for similarity to {target}, for the whole embedding and its halves: the gradient of the cosine, "
        "pooled over space at each time step, times the last feature map. Each row is scaled to its own "
        "largest values: it tells where and when, not how much.",
    ),
    "tubes": (
        "Saliency tubes",
        "How far each place points towards {target}: the last feature map times the direction of that embedding or "
        "half, summed over channels, from its smallest values (dark) to its largest.",
    ),
}


def inside_sections(folder: str | Path) -> list[Section]:
    """What `explain` wrote to a folder: numbers and figures of each video, its filmstrips and moving overlays."""
    root = Path(folder)
    results = read_json(root / RESULTS, remedy="the same explain command writes it again")
    shown = results["videos"]
    sections = [Section("What was looked at", _overview(results))]
    if len(shown) > 1:
        sections.append(Section("All videos together", _together(results)))
    for entry in shown:
        name = Path(entry["name"]).name
        whose = f": {name}" if len(shown) > 1 else ""
        drawn = inside_figures(entry, radius=results["radius"])
        sections.append(Section(f"Modes and similarity in time{whose}", [*_drawn_blocks(drawn)]))
        for kind, files in entry["files"].items():
            title, told = _TOLD[kind]
            blocks: list[Block] = [
                Movie(
                    data_uri((root / files["video"]).read_bytes(), "video/mp4"), f"{title} of {name}, frame by frame"
                ),
                Picture(webp_uri(root / files["filmstrip"]), told.format(target=results["target"])),
            ]
            sections.append(Section(f"{title}{whose}", blocks))
    return sections


def inside_figures(entry: Mapping[str, Any], *, radius: float) -> dict[str, Figure]:
    """The figures of one video's numbers, by the names of their files."""
    found = Modes(_complex(entry["eigenvalues"]), _complex(entry["amplitudes"]))
    alike = np.array(entry["similarity"])
    return {
        "eigenvalues": mode_plane(found, radius=radius),
        "amplitudes": mode_amplitudes(found, radius=radius),
        "similarity": similarity_matrix(alike, title="cosine between frames"),
        "lags": similarity_lags({"this video": alike}),
    }


def _drawn_blocks(drawn: dict[str, Figure]) -> list[Block]:
    return [
        figures({f"{name} of the modes": drawn[name] for name in ("eigenvalues", "amplitudes")}, caption=_MODES),
        figures({f"{name} of frames": drawn[name] for name in ("similarity", "lags")}, caption=_ALIKE),
    ]


def _overview(results: Mapping[str, Any]) -> list[Block]:
    """Which clips, and how similar their embeddings are to the target."""
    clip = f"{results['frames']} frames at stride {results['stride']}, {results['size']} px"
    told = (
        f"The middle clip ({clip}) of each video, as {results['encoder']} sees it. Similarity is to "
        f"{results['target']}; the closer it is to 1, the less is left for Grad-CAM to explain; 0 may be an empty half."
    )
    rows = [
        [
            Path(entry["name"]).name,
            f"{entry['clip'][0]}–{entry['clip'][-1]}",
            *(f"{entry['agreement'][part]:.3f}" for part in PARTS),
            f"{_inside(entry, results['radius'])} of {len(entry['eigenvalues'])}",
        ]
        for entry in results["videos"]
    ]
    header = ["video", "frames", *(f"similarity, {part}" for part in PARTS), f"within {results['radius']:g} of 1"]
    blocks: list[Block] = [Text(told), Table(header, rows)]
    if results["broken"]:
        listed = "; ".join(reason for _, reason in results["broken"])
        blocks.append(Text(f"Not shown: {listed}."))
    return blocks


def _inside(entry: Mapping[str, Any], radius: float) -> int:
    return int((np.abs(_complex(entry["eigenvalues"]) - 1) < radius).sum())


def _together(results: Mapping[str, Any]) -> list[Block]:
    shown = results["videos"]
    values = np.stack([_complex(entry["eigenvalues"]) for entry in shown])
    alike = np.mean([entry["similarity"] for entry in shown], axis=0)
    drawn = {
        "eigenvalues of all clips": eigenvalue_plane(values, radius=results["radius"]),
        "similarity of frames, mean over clips": similarity_matrix(alike, title="cosine between frames"),
        "similarity by lag, mean over clips": similarity_lags({"mean": alike}),
    }
    return [figures(drawn, caption=f"Eigenvalues of {len(shown)} clips, and the mean cosine between their frames.")]


def _complex(pairs: list[Any]) -> np.ndarray:
    table = np.array(pairs, dtype=np.float64)
    return table[..., 0] + 1j * table[..., 1]


def data_uri(content: bytes, kind: str) -> str:
    """A file's content as an address within a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def webp_uri(file: Path) -> str:
    """A picture as a data URI, smaller than its PNG."""
    with Image.open(file) as picture:
        return picture_uri(np.asarray(picture.convert("RGB")))


def picture_uri(pixels: np.ndarray) -> str:
    """A picture, uint8 (H, W, 3), as a data URI."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "WEBP", quality=82, method=4)
    return data_uri(content.getvalue(), "image/webp")
