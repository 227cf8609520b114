"""Short fine-tuning runs: log files, resuming, the untrained baseline, and errors."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support import gloo
from support.cached_run import cached_run
from support.class_videos import write_class_folders
from support.run_comparison import load_weights
from support.small_finetune import finetune_once, small_config
from support.small_pretrain import single_thread

from stillmotion.data.transforms.augment import AUGMENTATIONS
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone
from stillmotion.models.heads import VideoClassifier
from stillmotion.optim.optimizers import OptimConfig, build_optimizer, set_lr
from stillmotion.training.downstream import train_and_test
from stillmotion.training.finetune.task import FinetuneTrainer, finetune_folds
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_results, verb_of_run
from stillmotion.training.run_log import RunLog, load_metrics
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import from_dict

# The network has no batch norms, whose statistics would differ between parts.
TRANSFORMER = "debug:k400-byol-rho4-vit_b"


def test_results_say_what_was_tested(tmp_path):
    run = finetune_once(
        small_config(epochs=1, data={"num_test_clips": 2, "num_test_crops": 3, "test_full_frame": True}),
        tmp_path / "run",
    )
    results = load_results(run)
    assert results["classes"] == ["horizontal", "vertical", "circling", "zooming"]
    table = np.array(results["confusion"])
    assert table.sum() == results["test_videos"] == 16
    assert results["top1"] == pytest.approx(np.trace(table) / 16)
    assert results["top5"] == 1.0
    assert set(load_metrics(run)) == {"loss/cross_entropy", "train_accuracy", "grad_norm", "lr", "epoch"}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_and_accumulated_parts_train(tmp_path, precision):
    run = finetune_once(small_config(epochs=1, train={"precision": precision, "grad_accum_steps": 2}), tmp_path / "run")
    assert all(torch.isfinite(tensor).all() for tensor in load_weights(run).values())
    assert len(load_metrics(run)["lr"]) == 4


def test_accumulated_parts_give_the_gradient_of_the_whole_batch(tmp_path):
    by_parts = []
    for num_parts in (1, 2):
        config = small_config(head={"mixup_alpha": 0.4}, train={"grad_accum_steps": num_parts})
        by_parts.append(gradients(0, replace(config, encoder=TRANSFORMER), tmp_path / str(num_parts)))
    torch.testing.assert_close(by_parts[1], by_parts[0], atol=1e-6, rtol=1e-4)


def gradients(rank, config, folder):
    """Return the gradient of every weight in the first step."""
    with single_thread():
        run = FinetuneTrainer(config, folder, torch.device("cpu"))
        run.train_step(run.loader.iter_epoch(0), 0, RunLog(folder, total_steps=1, enabled=False))
    return {name: p.grad.clone() for name, p in run.trainable_params.items()}


AUGMENTED_CONFIG = small_config(head={"dropout": 0.3, "label_smoothing": 0.1, "mixup_alpha": 0.4})
TEST_CONFIG = small_config(epochs=1, data={"synthetic": replace(small_config().data.synthetic, num_videos=9)})


def run_on_rank(rank, folder):
    run = train_and_test(FinetuneTrainer(TEST_CONFIG, folder / "tested", torch.device("cpu")))
    return {"gradients": gradients(rank, AUGMENTED_CONFIG, folder / "mixed"), "results": load_results(run)}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return gloo.run_on_ranks(run_on_rank, tmp_path_factory.mktemp("two"))


@pytest.mark.slow
def test_two_processes_give_the_gradient_of_one(ranks, tmp_path):
    expected = gradients(0, AUGMENTED_CONFIG, tmp_path / "one")
    for rank in ranks:
        torch.testing.assert_close(rank["gradients"], expected, atol=1e-6, rtol=1e-4)


@pytest.mark.slow
def test_two_processes_share_the_test(ranks):
    first, second = (rank["results"] for rank in ranks)
    assert first == second
    assert first["test_videos"] == 9
    assert np.array(first["confusion"]).sum() == 9


def test_an_encoder_is_started_from_and_the_untrained_baseline_is_not(tmp_path):
    encoder = cached_run("k400-simclr")
    config = replace(small_config(lr=1e-12, weight_decay=0.0, epochs=1), encoder=str(encoder))
    from_run = load_weights(finetune_once(config, tmp_path / "run"))
    fresh = load_weights(finetune_once(replace(config, from_scratch=True), tmp_path / "fresh"))
    start_weights = load_weights(encoder)
    name = next(key for key in from_run if key.startswith("backbone.") and from_run[key].ndim == 5)
    torch.testing.assert_close(from_run[name], start_weights[f"online.{name}"])
    assert not torch.allclose(fresh[name], start_weights[f"online.{name}"])
    torch.testing.assert_close(from_run["head.weight"], fresh["head.weight"], atol=1e-6, rtol=0)
    scratch_config = replace(config, from_scratch=True, train=replace(config.train, seed=1))
    assert not torch.allclose(load_weights(finetune_once(scratch_config, tmp_path / "other"))[name], fresh[name])


def test_a_run_is_an_encoder_even_when_its_own_is_gone(tmp_path):
    run = finetune_once(replace(small_config(epochs=1), encoder="debug:k400-bod-simclr"), tmp_path / "run")
    encoder = load(run)
    assert encoder.origin.kind == "finetune"
    saved = load_weights(run)
    for name, tensor in encoder.backbone.state_dict().items():
        assert torch.equal(tensor, saved[f"backbone.{name}"]), name
    config = encoder.input_config
    assert (config.num_frames, config.stride, config.image_size) == (4, 1, 16)
    assert load(f"{run}@size=24").input_config.image_size == 24
    resumed = finetune_once(
        replace(small_config(lr=1e-12, weight_decay=0.0, epochs=1), encoder=str(run)), tmp_path / "again"
    )
    name = next(key for key in saved if key.startswith("backbone.") and saved[key].ndim == 5)
    torch.testing.assert_close(load_weights(resumed)[name], saved[name])
    saved_again = load_weights(resumed)
    (run / "encoder.json").unlink()
    assert torch.equal(load(resumed).backbone.state_dict()[name.removeprefix("backbone.")], saved_again[name])


def test_a_run_notes_its_network_and_the_clips_it_takes(tmp_path):
    run = finetune_once(replace(small_config(epochs=1), encoder="debug:k400-bod-simclr"), tmp_path / "run")
    assert verb_of_run(run) == "finetune"
    noted = json.loads((run / "encoder.json").read_text())
    assert set(noted) == {"kind", "spec", "pretrain_config", "input_config"}
    assert (noted["kind"], noted["spec"]) == ("recipe", "debug:k400-bod-simclr")
    assert from_dict(PretrainConfig, noted["pretrain_config"]) == get_recipe("k400-bod-simclr", debug=True)
    preset = AUGMENTATIONS[get_recipe("k400-bod-simclr", debug=True).data.augment]
    colours = {"mean": list(preset.mean), "std": list(preset.std)}
    assert noted["input_config"] == {"num_frames": 4, "stride": 1, "image_size": 16, "fps": 0} | colours


def test_a_run_counts_strides_at_the_rate_that_it_is_asked_for(tmp_path):
    timed = finetune_once(small_config(epochs=1, data={"fps": 16}), tmp_path / "timed")
    resumed = finetune_once(replace(small_config(epochs=1), encoder=str(timed)), tmp_path / "again")
    run_at_fps = finetune_once(
        replace(small_config(epochs=1, data={"fps": 0}), encoder=str(timed)), tmp_path / "counted"
    )
    assert [load(run).input_config.fps for run in (timed, resumed, run_at_fps)] == [16, 16, 0]
    assert load(f"{timed}@fps=4").input_config.fps == 4


def test_several_clips_of_a_video_are_as_many_steps_more_and_each_has_its_label(tmp_path):
    run = FinetuneTrainer(small_config(data={"clips_per_video": 3}), tmp_path / "run", torch.device("cpu"))
    assert run.steps_per_epoch == 3 * 16 // 4
    indices = np.concatenate([batch["index"] for batch in run.loader.iter_epoch(0)])
    assert sorted(indices) == list(range(3 * 16))
    assert np.array_equal(run.labels[indices], run.videos.train_labels[indices % 16])
    first, second = (run.loader.iter_epoch(0) for _ in range(2))
    clips = {int(i): clip for batch in first for i, clip in zip(batch["index"], batch["clips"], strict=True)}
    assert not all(torch.equal(clips[i], clips[i + 16]) for i in range(16))
    assert all(torch.equal(clips[int(i)], clip) for b in second for i, clip in zip(b["index"], b["clips"], strict=True))


def test_a_longer_run_is_tested_again(tmp_path):
    first = load_results(finetune_once(small_config(epochs=1), tmp_path / "run"))
    second = load_results(finetune_once(small_config(epochs=2), tmp_path / "run"))
    assert (first["steps"], second["steps"]) == (4, 8)


def test_deeper_layers_learn_more_slowly(tmp_path):
    config = OptimConfig(name="sgd", lr=1.0, lr_batch_size=0, layer_decay=0.5)
    model = VideoClassifier(create_backbone("small_vit", depth=2), 3)
    optimizer = build_optimizer(dict(model.named_parameters()), config, layer_depth=model.layer_depth)
    set_lr(optimizer, 1.0)
    rate = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert rate[id(model.head.weight)] == 1.0
    assert rate[id(model.backbone.blocks[1].mlp.fc1.weight)] == 0.5
    assert rate[id(model.backbone.patch_embed.proj.weight)] == 0.125


def test_mixup_and_dropout_change_with_the_epoch_and_not_with_the_batch(tmp_path):
    with single_thread():
        run = FinetuneTrainer(small_config(head={"dropout": 0.5}), tmp_path, torch.device("cpu"))
    joint_mask = run._dropout_mask([3, 5], 1)
    assert torch.equal(joint_mask[1:], run._dropout_mask([5], 1))
    assert not torch.equal(joint_mask, run._dropout_mask([3, 5], 2))
    assert set(joint_mask.unique().tolist()) == {0.0, 2.0}


def test_an_unreadable_video_is_named_and_skipped(tmp_path, capsys):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=6)
    (videos / "dark" / "0.mp4").write_bytes(b"nothing")
    config = small_config(epochs=2, data={"path": str(videos), "target": ""})
    run = finetune_once(config, tmp_path / "run")
    skipped = (run / "failed_videos.json").read_text() + str(load_results(run)["failed"])
    assert "0.mp4" in skipped
    assert load_results(run)["classes"] == ["dark", "light"]


def fold_list(root):
    """Write a list with two folds; the second test split has a class without training videos."""
    lines = ["path,class,split1,split2"]
    for name in ("dark", "light"):
        lines += [
            f"{root}/{name}/{i}.mp4,{name},{'test' if i < 2 else 'train'},{'test' if i >= 4 else 'train'}"
            for i in range(6)
        ]
    (root / "labels.csv").write_text("\n".join([*lines, f"{root}/dark/0.mp4,odd,,test"]))
    return root


def test_folds_are_trained_one_by_one_and_averaged(tmp_path):
    videos = fold_list(write_class_folders(tmp_path / "videos", videos_per_class=6))
    config = small_config(epochs=1, data={"path": str(videos), "target": ""})
    with single_thread():
        folder = finetune_folds(config, tmp_path / "folds", [1, 2])
        before = (folder / "fold1" / "training_state.pt").read_bytes()
        finetune_folds(config, tmp_path / "folds", [1, 2])
    assert (folder / "fold1" / "training_state.pt").read_bytes() == before
    results, fold_results = load_results(folder), [load_results(folder / f"fold{i}") for i in (1, 2)]
    assert results["top1"] == pytest.approx(np.mean([r["top1"] for r in fold_results]))
    assert results["folds"] == {"1": fold_results[0], "2": fold_results[1]}


def test_folds_that_are_the_same_are_an_error(tmp_path):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=6)
    rows = [f"{n}/{i}.mp4,{n},{'test' if i < 2 else 'train'}" for n in ("dark", "light") for i in range(6)]
    (videos / "split.csv").write_text("\n".join(["path,class,split", *rows]))
    with pytest.raises(StillmotionError, match=r"folds 1 and 2 of .* are the same"):
        finetune_folds(small_config(data={"target": "", "path": str(videos / "split.csv")}), tmp_path / "run", [1, 2])
