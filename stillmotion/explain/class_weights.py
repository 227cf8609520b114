"""Class weights of a fine-tuned head, or of a linear probe.

Shapes: C classes, T' time steps (1 if the head pools their mean), D channels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders import Encoder, extract_features, parse_spec
from stillmotion.encoders.run_weights import resolve_run_weights
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.classifiers import fit_linear_weights
from stillmotion.models.pretrained.weight_loading import read_state_dict
from stillmotion.utils.files import read_json
from stillmotion.utils.registry import did_you_mean

_CLIPS_PER_VIDEO = 2  # for training a probe


class ClassWeights(NamedTuple):
    """A linear classifier of per-frame features.

    Attributes:
        weight: Weights (C, T', D).
        bias: Biases (C,).
        class_names: Names of the classes.
        source: What the classifier is.
    """

    weight: Tensor
    bias: Tensor
    class_names: list[str]
    source: str

    def predict_proba(self, frames: Tensor) -> Tensor:
        """Return the class probabilities (C,) of a clip's features (T', D)."""
        steps = self.weight.shape[1]
        pooled = frames.mean(0, keepdim=True) if steps == 1 else frames
        return (torch.einsum("td,ctd->c", pooled, self.weight) + self.bias).softmax(0)

    def for_class(self, class_name: str) -> Tensor:
        """Return the weights of a class: (D,), or (T', D) if the head has weights for each time step."""
        return self.weight[self.class_names.index(class_name)].squeeze(0)


def load_class_weights(encoder: Encoder, class_name: str, probe_data: str | None) -> ClassWeights:
    """Load the weights of a fine-tuned head; for any other encoder, train a linear probe.

    Args:
        encoder: The encoder.
        class_name: A class that the classifier must have.
        probe_data: Labeled videos, on whose training split the probe is trained.

    Raises:
        StillmotionError: If there is no classifier, or no such class.
    """
    if encoder.origin.kind == "finetune":
        weights = _head_weights(encoder)
    elif probe_data is not None:
        weights = _probe_weights(encoder, class_name, probe_data)
    else:
        raise StillmotionError(f"{encoder.name} has no classifier; add --probe-data FOLDER to train a linear probe")
    _check_class(class_name, weights.class_names, encoder.name)
    return weights


def _head_weights(encoder: Encoder) -> ClassWeights:
    run = resolve_run_weights(parse_spec(encoder.origin.spec))
    weights = read_state_dict(run.weights_file)
    classes = [str(name) for name in read_json(Path(run.run_dir) / "results.json")["classes"]]
    weight = weights["head.weight"].unflatten(1, (-1, encoder.backbone.out_features))
    return ClassWeights(weight, weights["head.bias"], classes, "its head")


def _probe_weights(encoder: Encoder, class_name: str, probe_data: str) -> ClassWeights:
    train, _ = TrainTestConfig(probe_data).open(encoder.synthetic_config).train_test()
    target = next((target for target, names in train.classes.items() if class_name in names), None)
    if target is None:
        _check_class(class_name, [each for names in train.classes.values() for each in names], probe_data)
    assert target is not None
    known = Subset(train.dataset, train.indices[train.labels[target] >= 0])
    features = extract_features(encoder, known, num_clips=_CLIPS_PER_VIDEO, loader=LoaderConfig())
    labels = known.labels[target][features.index]
    present = sorted(set(labels.tolist()))
    fitted = fit_linear_weights(features.whole, torch.tensor([present.index(y) for y in labels.tolist()]).numpy())
    weight = torch.from_numpy(fitted.weight).float()[:, None]
    classes = [train.classes[target][number] for number in present]
    return ClassWeights(weight, torch.from_numpy(fitted.bias).float(), classes, f"a linear probe on {probe_data}")


def _check_class(class_name: str, classes: Sequence[str], source: str) -> None:
    if class_name not in classes:
        raise StillmotionError(f"{source} has no class {class_name!r}{did_you_mean(class_name, classes)}")
