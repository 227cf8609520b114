"""Sections of the explain page, built from `results.json` and the files that it names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stillmotion.explain.koopman_modes import KoopmanModes, plot_mode_amplitudes, plot_mode_eigenvalues
from stillmotion.explain.saliency import EMBEDDING_PARTS
from stillmotion.explain.spectrum_plots import plot_eigenvalues, plot_similarity_by_lag, plot_similarity_matrix
from stillmotion.report.images import data_uri, image_file_uri
from stillmotion.report.page_blocks import Block, ImageBlock, Section, Table, Text, VideoBlock, figure_block
from stillmotion.utils.files import read_json

RESULTS_FILE = "results.json"
_MODES_CAPTION = (
    "Left: eigenvalues of the clip's Koopman operator. Right: amplitudes of its strongest modes, in the same colors. A "
    "mode whose eigenvalue lies in the green disc of radius ξ around 1 does not change: it is static. A mode on the "
    "unit circle oscillates without decay; one well inside it decays."
)
_SIMILARITY_CAPTION = (
    "Cosine between the features of every two frames, and its mean by the number of frames between them."
)
_SALIENCY_CAPTIONS = {
    "grad-cam": (
        "Grad-CAM",
        "Evidence for similarity to {target}, for the whole embedding and its static and dynamic components: the last "
        "feature map weighted by the gradient of the cosine, pooled over space at each time step. Each row is scaled "
        "to its own range, so compare positions and times, not strength.",
    ),
    "tubes": (
        "Saliency tubes",
        "Similarity to {target} by position: the last feature map weighted by the direction of that embedding or "
        "component, summed over channels, from its smallest values (dark) to its largest.",
    ),
}


def explain_sections(folder: str | Path) -> list[Section]:
    """Build the sections about the videos that `explain` wrote to a folder."""
    root = Path(folder)
    results = read_json(root / RESULTS_FILE, hint="run the same explain command again to write it")
    videos = results["videos"]
    sections = [Section("Settings", _settings_blocks(results))]
    if len(videos) > 1:
        sections.append(Section("All videos", _summary_blocks(results)))
    for video in videos:
        name = Path(video["name"]).name
        suffix = f": {name}" if len(videos) > 1 else ""
        figures = explain_figures(video, static_radius=results["static_radius"])
        sections.append(Section(f"Koopman modes and temporal similarity{suffix}", _figure_blocks(figures)))
        for method, files in video["files"].items():
            title, caption = _SALIENCY_CAPTIONS[method]
            caption = caption.format(target=results["target"])
            sections.append(saliency_section(root, files, f"{title}{suffix}", f"{title} of {name}", caption))
    return sections


def saliency_section(
    root: Path, files: Mapping[str, str], title: str, video_caption: str, strip_caption: str
) -> Section:
    """Build the section with the overlay video and the filmstrip of a saliency method.

    Args:
        root: Folder that the paths are relative to.
        files: Paths of `video` and `filmstrip`.
        title: Title of the section.
        video_caption: Caption of the video.
        strip_caption: Caption of the filmstrip.
    """
    video_uri = data_uri((root / files["video"]).read_bytes(), "video/mp4")
    return Section(
        title,
        [VideoBlock(video_uri, video_caption), ImageBlock(image_file_uri(root / files["filmstrip"]), strip_caption)],
    )


def describe_clip(results: Mapping[str, Any]) -> str:
    """Describe the clips of results: number of frames, stride and size."""
    return f"{results['num_frames']} frames at stride {results['stride']}, {results['image_size']} px"


def failed_blocks(results: Mapping[str, Any]) -> list[Block]:
    """Build the block that lists failed videos; none if there are none."""
    return [Text(f"Not shown: {'; '.join(results['failed'].values())}.")] if results["failed"] else []


def explain_figures(entry: Mapping[str, Any], *, static_radius: float) -> dict[str, Figure]:
    """Plot the values of one video.

    Args:
        entry: Its entry in the results.
        static_radius: Radius of static eigenvalues around 1.

    Returns:
        Figures by file name.
    """
    modes = KoopmanModes(_complex(entry["eigenvalues"]), _complex(entry["amplitudes"]))
    similarity = np.array(entry["similarity"])
    return {
        "eigenvalues": plot_mode_eigenvalues(modes, radius=static_radius),
        "amplitudes": plot_mode_amplitudes(modes, radius=static_radius),
        "similarity": plot_similarity_matrix(similarity, title="cosine between frames"),
        "lags": plot_similarity_by_lag({"this video": similarity}),
    }


def _figure_blocks(figures: Mapping[str, Figure]) -> list[Block]:
    modes = {f"{name} of the modes": figures[name] for name in ("eigenvalues", "amplitudes")}
    similarity = {f"{name} of frames": figures[name] for name in ("similarity", "lags")}
    return [figure_block(modes, caption=_MODES_CAPTION), figure_block(similarity, caption=_SIMILARITY_CAPTION)]


def _settings_blocks(results: Mapping[str, Any]) -> list[Block]:
    """Build the blocks about the clips and how similar their embeddings are to the target."""
    intro = (
        f"The middle clip of each video ({describe_clip(results)}), embedded by {results['encoder']}. Similarity is to "
        f"{results['target']}. The closer it is to 1, the less remains for Grad-CAM to explain; 0 may be an empty "
        "component."
    )
    radius = results["static_radius"]
    rows = [
        [
            Path(video["name"]).name,
            f"{video['frame_indices'][0]}–{video['frame_indices'][-1]}",
            *(f"{video['target_cosine'][part]:.3f}" for part in EMBEDDING_PARTS),
            f"{int((np.abs(_complex(video['eigenvalues']) - 1) < radius).sum())} of {len(video['eigenvalues'])}",
        ]
        for video in results["videos"]
    ]
    similarities = (f"similarity, {part}" for part in EMBEDDING_PARTS)
    header = ["video", "frames", *similarities, f"eigenvalues within {radius:g} of 1"]
    return [Text(intro), Table(header, rows), *failed_blocks(results)]


def _summary_blocks(results: Mapping[str, Any]) -> list[Block]:
    videos = results["videos"]
    values = np.stack([_complex(video["eigenvalues"]) for video in videos])
    similarity = np.mean([video["similarity"] for video in videos], axis=0)
    figures = {
        "eigenvalues of all clips": plot_eigenvalues(values, radius=results["static_radius"]),
        "similarity of frames, mean over clips": plot_similarity_matrix(similarity, title="cosine between frames"),
        "similarity by lag, mean over clips": plot_similarity_by_lag({"mean": similarity}),
    }
    return [figure_block(figures, caption=f"Eigenvalues of {len(videos)} clips, and the mean cosine of their frames.")]


def _complex(pairs: list[Any]) -> np.ndarray:
    table = np.array(pairs, dtype=np.float64)
    return table[..., 0] + 1j * table[..., 1]
