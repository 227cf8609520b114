"""The constants of each fine-tuning protocol."""

import pytest

from stillmotion.errors import StillmotionError
from stillmotion.optim.optimizers import lr_at_epoch
from stillmotion.training.finetune.recipes import FINETUNE_RECIPES


def rates(config, *epochs):
    return [pytest.approx(lr_at_epoch(config.optim, epoch)) for epoch in epochs]


def test_slowfast_trains_200_epochs_under_a_cosine():
    config = FINETUNE_RECIPES.get("slowfast")
    assert (config.optim.epochs, config.optim.weight_decay, config.head.dropout) == (200, 1e-4, 0.5)
    assert rates(config, 0, 100, 200) == [0.005, 0.0025, 0.0]
    assert (config.data.num_test_clips, config.data.num_test_crops, config.data.test_full_frame) == (10, 3, True)


def test_after_synchronised_norms_slowfast_has_twice_the_rate_no_decay_and_more_dropout():
    config, other = FINETUNE_RECIPES.get("slowfast-syncbn"), FINETUNE_RECIPES.get("slowfast")
    assert (config.optim.lr, config.optim.weight_decay, config.head.dropout) == (0.01, 0.0, 0.8)
    assert config.data == other.data
    assert config.data.fps == 30


def test_vididi_divides_by_ten_at_60_and_80():
    config = FINETUNE_RECIPES.get("vididi")
    assert (config.data.num_frames, config.optim.batch_size, config.data.num_test_clips) == (16, 128, 10)
    assert rates(config, 0, 59.9, 60, 80, 99) == [0.2, 0.2, 0.02, 0.002, 0.002]


def test_severe_is_adam_with_three_steps():
    config = FINETUNE_RECIPES.get("severe")
    assert (config.optim.name, config.optim.weight_decay, config.optim.batch_size) == ("adamw", 0.0, 32)
    assert (config.data.num_frames, config.data.image_size, config.data.num_test_clips) == (32, 112, 10)
    assert (config.data.frame_stride, config.data.fps) == (1, 16)
    assert (config.data.clips_per_video, config.optim.epochs) == (10, 16)
    assert rates(config, 0, 6, 10, 14) == [1e-4, 3e-5, 9e-6, 2.7e-6]


def test_severe_sees_two_clips_of_something_something_in_each_of_22_epochs():
    config = FINETUNE_RECIPES.get("severe-ssv2")
    assert (config.data.path, config.data.clips_per_video, config.optim.epochs) == ("ssv2", 2, 22)
    assert rates(config, 0, 12, 17, 20) == [1e-4, 3e-5, 9e-6, 2.7e-6]


def test_something_something_is_never_mirrored():
    config = FINETUNE_RECIPES.get("ssv2-slowfast")
    assert config.data.augment.flip_prob == 0.0
    assert (config.data.num_test_clips, config.data.num_test_crops) == (1, 1)
    assert rates(config, 1, 14, 18, 21) == [0.12, 0.012, 0.0012, 0.0012]


def test_a_wrong_name_is_answered_with_the_nearest():
    assert "laptop" in FINETUNE_RECIPES.names()
    with pytest.raises(StillmotionError, match="did you mean slowfast"):
        FINETUNE_RECIPES.get("slowfst")
