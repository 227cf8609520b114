"""The sections of what `stillmotion explain` found, drawn from its `results.json` and the files that it names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stillmotion.explain.koopman_modes import KoopmanModes, plot_mode_amplitudes, plot_mode_eigenvalues
from stillmotion.explain.saliency import EMBEDDING_PARTS
from stillmotion.explain.spectrum_plots import plot_eigenvalues, plot_similarity_by_lag, plot_similarity_matrix
from stillmotion.report.blocks import Block, ImageBlock, Section, Table, Text, VideoBlock, figure_block
from stillmotion.report.images import data_uri, image_file_uri
from stillmotion.utils.files import read_json

RESULTS_FILE = "results.json"
_MODES_CAPTION = (
    "The eigenvalues of the clip's Koopman operator, and the amplitudes of its strongest modes in the same colours. A "
    "mode whose eigenvalue lies in the green disc of radius ξ about 1 stays as it is: it is static. One on the unit "
    "circle turns without fading; one well inside it fades."
)
_SIMILARITY_CAPTION = (
    "The cosine between the features of every two frames, and its mean by the frames that lie between them."
)
_SALIENCY_CAPTIONS = {
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


def explain_sections(folder: str | Path) -> list[Section]:
    """What `explain` wrote to a folder: numbers and figures of each video, its filmstrips and moving overlays."""
    root = Path(folder)
    results = read_json(root / RESULTS_FILE, hint="the same explain command writes it again")
    shown = results["videos"]
    sections = [Section("What was looked at", _overview_blocks(results))]
    if len(shown) > 1:
        sections.append(Section("All videos together", _summary_blocks(results)))
    for entry in shown:
        name = Path(entry["name"]).name
        whose = f": {name}" if len(shown) > 1 else ""
        drawn = explain_figures(entry, static_radius=results["static_radius"])
        sections.append(Section(f"Modes and similarity in time{whose}", [*_figure_blocks(drawn)]))
        for kind, files in entry["files"].items():
            title, told = _SALIENCY_CAPTIONS[kind]
            blocks: list[Block] = [
                VideoBlock(
                    data_uri((root / files["video"]).read_bytes(), "video/mp4"), f"{title} of {name}, frame by frame"
                ),
                ImageBlock(image_file_uri(root / files["filmstrip"]), told.format(target=results["target"])),
            ]
            sections.append(Section(f"{title}{whose}", blocks))
    return sections


def explain_figures(entry: Mapping[str, Any], *, static_radius: float) -> dict[str, Figure]:
    """The figures of one video's numbers, by the names of their files."""
    found = KoopmanModes(_complex(entry["eigenvalues"]), _complex(entry["amplitudes"]))
    alike = np.array(entry["similarity"])
    return {
        "eigenvalues": plot_mode_eigenvalues(found, radius=static_radius),
        "amplitudes": plot_mode_amplitudes(found, radius=static_radius),
        "similarity": plot_similarity_matrix(alike, title="cosine between frames"),
        "lags": plot_similarity_by_lag({"this video": alike}),
    }


def _figure_blocks(drawn: dict[str, Figure]) -> list[Block]:
    return [
        figure_block(
            {f"{name} of the modes": drawn[name] for name in ("eigenvalues", "amplitudes")}, caption=_MODES_CAPTION
        ),
        figure_block(
            {f"{name} of frames": drawn[name] for name in ("similarity", "lags")}, caption=_SIMILARITY_CAPTION
        ),
    ]


def _overview_blocks(results: Mapping[str, Any]) -> list[Block]:
    """Which clips, and how similar their embeddings are to the target."""
    clip = f"{results['num_frames']} frames at stride {results['stride']}, {results['image_size']} px"
    told = (
        f"The middle clip ({clip}) of each video, as {results['encoder']} sees it. Similarity is to "
        f"{results['target']}; the closer it is to 1, the less is left for Grad-CAM to explain; 0 may be an empty half."
    )
    rows = [
        [
            Path(entry["name"]).name,
            f"{entry['frame_indices'][0]}–{entry['frame_indices'][-1]}",
            *(f"{entry['target_cosine'][part]:.3f}" for part in EMBEDDING_PARTS),
            f"{_num_static(entry, results['static_radius'])} of {len(entry['eigenvalues'])}",
        ]
        for entry in results["videos"]
    ]
    header = [
        "video",
        "frames",
        *(f"similarity, {part}" for part in EMBEDDING_PARTS),
        f"within {results['static_radius']:g} of 1",
    ]
    blocks: list[Block] = [Text(told), Table(header, rows)]
    if results["failed"]:
        listed = "; ".join(reason for _, reason in results["failed"])
        blocks.append(Text(f"Not shown: {listed}."))
    return blocks


def _num_static(entry: Mapping[str, Any], radius: float) -> int:
    return int((np.abs(_complex(entry["eigenvalues"]) - 1) < radius).sum())


def _summary_blocks(results: Mapping[str, Any]) -> list[Block]:
    shown = results["videos"]
    values = np.stack([_complex(entry["eigenvalues"]) for entry in shown])
    alike = np.mean([entry["similarity"] for entry in shown], axis=0)
    drawn = {
        "eigenvalues of all clips": plot_eigenvalues(values, radius=results["static_radius"]),
        "similarity of frames, mean over clips": plot_similarity_matrix(alike, title="cosine between frames"),
        "similarity by lag, mean over clips": plot_similarity_by_lag({"mean": alike}),
    }
    return [
        figure_block(drawn, caption=f"Eigenvalues of {len(shown)} clips, and the mean cosine between their frames.")
    ]


def _complex(pairs: list[Any]) -> np.ndarray:
    table = np.array(pairs, dtype=np.float64)
    return table[..., 0] + 1j * table[..., 1]
