"""The weights of a class, of a fine-tuned head or of a probe, and the saliency tube that they give."""

import numpy as np
import pytest
import torch
from support.class_videos import write_class_folders
from support.small_finetune import finetune_once, small_config

from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.classifiers import fit_linear_weights
from stillmotion.explain.class_weights import load_class_weights
from stillmotion.explain.saliency import last_feature_map, saliency_tube
from stillmotion.models.heads import VideoClassifier


@pytest.mark.parametrize("pool", ["mean", "concat"])
def test_a_tube_of_a_heads_row_averages_to_the_score_that_the_run_gives(pool, tmp_path):
    run = finetune_once(small_config(epochs=1, head={"pool": pool}), tmp_path / "run")
    encoder = load(run)
    rows = load_class_weights(encoder, "circling", None)
    classifier = VideoClassifier(encoder.backbone, 4, pool=pool, num_steps=4).eval()
    classifier.head.load_state_dict({"weight": rows.weight.flatten(1), "bias": rows.bias})
    clip = torch.rand(3, 4, 16, 16)
    features = last_feature_map(encoder, clip)
    scores = classifier(clip[None])[0].detach()
    class_index = rows.class_names.index("circling")
    tube = saliency_tube(features, rows.for_class("circling"))
    summed = tube.mean() if pool == "mean" else tube.mean((1, 2)).sum()
    torch.testing.assert_close(summed + rows.bias[class_index], scores[class_index])
    torch.testing.assert_close(rows.predict_proba(features.mean((2, 3)).T), scores.softmax(0))


def test_a_probes_rows_are_of_features_as_they_are():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    x = rng.normal(size=(60, 2, 5)) * [1, 10, 0.1, 1, 1] + 7
    x[..., 1] += 30 * (y == 1)[:, None]
    x[..., 2] += 0.5 * (y == 2)[:, None]
    for classes in (3, 2):
        is_used = y < classes
        rows = fit_linear_weights(x[is_used], y[is_used])
        assert rows.weight.shape == (classes, 5)
        scores = x[is_used] @ rows.weight.T + rows.bias
        assert (scores.mean(1).argmax(1) == y[is_used]).mean() > 0.9


def test_a_run_without_classes_is_probed_and_what_is_unknown_is_named(run, tmp_path):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=4, num_frames=10, image_size=24)
    encoder = load(run).with_input(stride=1)
    rows = load_class_weights(encoder, "dark", str(videos))
    assert rows.class_names == ["dark", "light"]
    assert rows.weight.shape == (2, 1, encoder.backbone.out_features)
    with pytest.raises(StillmotionError, match="has no classifier; add --probe-data"):
        load_class_weights(encoder, "dark", None)
    with pytest.raises(StillmotionError, match="has no class 'drak'; did you mean dark"):
        load_class_weights(encoder, "drak", str(videos))


def test_weights_of_a_tube_fit_its_channels_or_its_steps_and_channels():
    features = torch.rand(3, 4, 2, 2)
    weights = torch.rand(4, 3)
    torch.testing.assert_close(saliency_tube(features, weights), torch.einsum("td,dthw->thw", weights, features))
    with pytest.raises(StillmotionError, match="feature map has 3 channels"):
        saliency_tube(features, torch.rand(4))
