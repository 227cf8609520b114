"""What a sweep asks of a transfer run: how patches find back in videos held out, distances, and masks carried on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillmotion.config.transfer import TransferConfig
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, load
from stillmotion.evaluate.geometry import FROZEN, Geometry, geometry
from stillmotion.evaluate.propagate import Sequences, propagate
from stillmotion.files import write_json
from stillmotion.nn.images import TokensBackbone, load_images
from stillmotion.nn.intake import Intake
from stillmotion.train.process import choose_device

MEASURED = "measured.json"
KIND = "tokens"  # stands where a probe has its kind of feature
_COLUMNS = ("cycle accuracy", "D_inter", "D_intra", "D")
_CARRIED = "J&F"
_RESAMPLES = 20  # of intervals, which a sweep has over seeds instead


def measured(folder: Path, config: TransferConfig, asked: Mapping[str, Any]) -> None:
    """Measure a transfer run, and where `untrained` is asked its frozen model; writes `measured.json`.

    asked: `data`, the videos for cycles and distances, and how many `videos` of them; `sequences` in DAVIS's layout at
        this `resolution`, or None.
    """
    how = Geometry(videos=asked["videos"], size=config.data.size, resamples=_RESAMPLES)
    near = geometry([str(folder)], Videos(asked["data"]), how, device=config.train.device)
    rows = {"trained": near["rows"][str(folder)]}
    if asked.get("untrained"):
        rows["untrained"] = near["rows"][FROZEN]
    found: dict[str, dict[str, float]] = {name: {c: row[c][0] for c in _COLUMNS} for name, row in rows.items()}
    if asked.get("sequences"):
        sequences = Sequences(asked["sequences"], resolution=asked["resolution"])
        for name in found:
            encoder = load(folder, device=config.train.device) if name == "trained" else _frozen(config)
            found[name][_CARRIED] = propagate(encoder, sequences, folder / "carried" / name)["mean"][_CARRIED]
    write_json(folder / MEASURED, {name: {KIND: cells} for name, cells in found.items()})


def _frozen(config: TransferConfig) -> Encoder:
    """The image model of a transfer run, without a projection."""
    images = load_images(config.images)
    intake = Intake(8, 8, config.data.size, images.normalisation)
    return Encoder(TokensBackbone(images), intake=intake).to(choose_device(config.train.device)).eval()
