"""The constants of each fine-tuning protocol."""

from dataclasses import replace

import pytest
from support.small_finetune import finetune_once, small_config

from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.optim.optimizers import lr_at_epoch
from stillmotion.training.finetune.recipes import FINETUNE_RECIPES
from stillmotion.training.run_dir import load_results


def rates(config, *epochs):
    return [pytest.approx(lr_at_epoch(config.optim, epoch)) for epoch in epochs]


def test_slowfast_trains_200_epochs_under_a_cosine():
    config = FINETUNE_RECIPES.get("slowfast")
    assert (config.optim.epochs, config.optim.weight_decay, config.head.dropout) == (200, 1e-4, 0.5)
    assert rates(config, 0, 100, 200) == [0.005, 0.0025, 0.0]
    assert (config.data.num_test_clips, config.data.num_test_crops, config.data.test_full_frame) == (10, 3, True)


def test_after_synchronised_norms_slowfast_has_twice_the_rate_no_decay_and_more_dropout():
    config, baseline = FINETUNE_RECIPES.get("slowfast-syncbn"), FINETUNE_RECIPES.get("slowfast")
    assert (config.optim.lr, config.optim.weight_decay, config.head.dropout) == (0.01, 0.0, 0.8)
    assert config.data == baseline.data
    assert config.data.fps == 30


def test_networks_at_112_pixels_see_16_frames_and_are_tested_on_three_clips():
    config, baseline = FINETUNE_RECIPES.get("bod-vcl-112"), FINETUNE_RECIPES.get("slowfast-syncbn")
    assert (config.data.num_frames, config.data.frame_stride, config.data.image_size) == (16, 4, 112)
    assert (config.data.num_test_clips, config.data.num_test_crops, config.data.test_full_frame) == (3, 1, False)
    assert (config.optim, config.head, config.data.augment) == (baseline.optim, baseline.head, baseline.data.augment)


def test_the_video_vit_is_tuned_as_videomae_is():
    config = FINETUNE_RECIPES.get("bod-vcl-vit")
    assert (config.data.num_frames, config.data.frame_stride, config.data.image_size) == (16, 4, 224)
    assert (config.data.num_test_clips, config.data.num_test_crops) == (3, 1)
    assert (config.optim.name, config.optim.weight_decay, config.optim.layer_decay) == ("adamw", 0.05, 0.7)
    assert (config.head.dropout, config.head.label_smoothing, config.head.mixup_alpha) == (0.5, 0.1, 0.8)
    # 128 videos with two clips each, at half of the rate for 256 videos.
    assert (config.optim.batch_size, config.data.clips_per_video, config.optim.lr_scale) == (256, 2, 1.0)
    assert rates(config, 0, 5, 52.5, 100) == [1e-8, 2.5e-4, 1.25e-4, 0.0]


@pytest.mark.parametrize("name", FINETUNE_RECIPES.names())
def test_a_debug_run_of_each_recipe_trains_and_is_tested(name, tmp_path):
    encoder = "debug:k400-byol-rho4-vit_b" if name == "bod-vcl-vit" else "debug:k400-simclr"
    run = finetune_once(replace(small_config(recipe=name, epochs=1), encoder=encoder), tmp_path / "run")
    assert load_results(run)["test_videos"] == 16
    assert type(load(run).backbone).__name__ == ("VideoTransformer" if "vit_b" in encoder else "SmallCNN3d")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["s3d_g", "r3d_18", "r2plus1d_18"])
def test_networks_of_table_3_are_tuned(network, tmp_path):
    config = small_config(recipe="bod-vcl-112", epochs=1, batch_size=8, data={"image_size": 32})
    config = replace(config, encoder=f"k400-byol-rho4-{network}")
    assert load_results(finetune_once(config, tmp_path / "run"))["test_videos"] == 16


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
