"""Which features speak for a class: the rows of a fine-tuned run's head, or of a linear probe.

Shapes: C classes, T' time steps (1 where a head pools their mean), D channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from stillmotion.data.halves import Halves
from stillmotion.data.reading import Reading
from stillmotion.data.subset import Subset
from stillmotion.encoders import Encoder, extract, read_text
from stillmotion.encoders.runs import trained
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.linear import linear_rows
from stillmotion.registry import suggestion
from stillmotion.tasks.start import read_results

_CLIPS = 2  # of each video that a probe learns from


class Rows(NamedTuple):
    """A linear classifier of per-frame features: weight (C, T', D), bias (C,), the classes, and whose it is."""

    weight: Tensor
    bias: Tensor
    classes: list[str]
    whose: str

    def probabilities(self, frames: Tensor) -> Tensor:
        """Of the classes (C,), for a clip's features (T', D)."""
        steps = self.weight.shape[1]
        pooled = frames.mean(0, keepdim=True) if steps == 1 else frames
        return (torch.einsum("td,ctd->c", pooled, self.weight) + self.bias).softmax(0)

    def of(self, name: str) -> Tensor:
        """What a class multiplies features with: (D,), or (T', D) where its head sees their order."""
        return self.weight[self.classes.index(name)].squeeze(0)


def class_rows(encoder: Encoder, name: str, labelled: str | None) -> Rows:
    """The rows of a fine-tuned run's head; of any other encoder, those of a linear probe on labelled videos.

    name: a class that must be among them. labelled: a set, of whose training half the probe learns.
    """
    if encoder.origin.kind == "finetune":
        rows = _of_head(encoder)
    elif labelled is not None:
        rows = _of_probe(encoder, name, labelled)
    else:
        raise StillmotionError(
            f"{encoder.name} has no classes of its own; add --labelled FOLDER, on which a linear probe learns them"
        )
    _check(name, rows.classes, encoder.name)
    return rows


def _of_head(encoder: Encoder) -> Rows:
    run = trained(read_text(encoder.origin.text))
    weights = load_file(run.weights)
    classes = [str(name) for name in read_results(run.folder)["classes"]]
    weight = weights["head.weight"].unflatten(1, (-1, encoder.backbone.width))
    return Rows(weight, weights["head.bias"], classes, "its head")


def _of_probe(encoder: Encoder, name: str, labelled: str) -> Rows:
    train, _ = Halves(labelled).open(encoder.drawn).halves()
    target = next((target for target, names in train.classes.items() if name in names), None)
    if target is None:
        _check(name, [each for names in train.classes.values() for each in names], labelled)
    assert target is not None
    known = Subset(train.videos, train.chosen[train.labels[target] >= 0])
    found = extract(encoder, known, clips=_CLIPS, reading=Reading())
    labels = known.labels[target][found.index]
    numbers = sorted(set(labels.tolist()))
    fitted = linear_rows(found.whole, torch.tensor([numbers.index(y) for y in labels.tolist()]).numpy())
    weight = torch.from_numpy(fitted.weight).float()[:, None]
    classes = [train.classes[target][number] for number in numbers]
    return Rows(weight, torch.from_numpy(fitted.bias).float(), classes, f"a linear probe on {labelled}")


def _check(name: str, classes: Sequence[str], where: str) -> None:
    if name not in classes:
        raise StillmotionError(f"{where} has no class {name!r}{suggestion(name, classes)}")
