"""The training loop: the effect of a step on the weights, and errors."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import gloo
from support.class_videos import write_class_folders
from support.diverging_run import make_lr_infinite_after
from support.run_comparison import load_weights
from support.small_pretrain import pretrain_in_float64, single_thread, small_config, train
from torch import Tensor

from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.data.transforms.augment import build_augmentation
from stillmotion.errors import NonFiniteError, StillmotionError, VideoError
from stillmotion.methods.method import Method, MethodOutput
from stillmotion.optim.optimizers import build_optimizer, lr_at_epoch
from stillmotion.training import checkpoint
from stillmotion.training.pretrain import task as module
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config, verb_of_run
from stillmotion.training.run_log import load_metrics
from stillmotion.training.tasks import get_recipe

SGD = {"optim.name": "sgd", "optim.lr": 0.1, "optim.lr_batch_size": 0, "optim.weight_decay": 0.0}
ONE_STEP = {"data.synthetic.num_videos": 8}


def build_initial_method(config: PretrainConfig) -> Method:
    """Return the method that a run of this configuration starts from."""
    torch.manual_seed(config.train.seed)
    return Method(config.method).train()


def batches(config: PretrainConfig, *, batch: int) -> list[Tensor]:
    """Return the clips of the first epoch."""
    data, seed = config.data, config.train.seed
    videos = TrainClipDataset(
        data.open(synthetic=data.synthetic, seed=seed),
        data.num_frames,
        data.frame_stride,
        data.clips_per_video,
        build_augmentation(data.augment, size=data.image_size),
        seed=seed,
    )
    return [batch["clips"] for batch in ClipLoader(videos, batch_size=batch, seed=seed).iter_epoch(0)]


def expected_step(config: PretrainConfig, parts: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the weights after one step with the mean gradient of these parts, and the gradient's norm."""
    method = build_initial_method(config)
    torch.manual_seed(config.train.seed * 1009 + 1)
    with single_thread():
        gradients = [compute_gradients(method, clips, config)[1] for clips in parts]
    for name, p in method.trainable_parameters().items():
        p.grad = torch.stack([gradient[name] for gradient in gradients]).mean(0)
    norm = torch.nn.utils.clip_grad_norm_(method.parameters(), config.optim.max_grad_norm or math.inf)
    optimizer = build_optimizer(method.trainable_parameters(), config.optim)
    for group in optimizer.param_groups:
        group["lr"] = lr_at_epoch(config.optim, 0.0)
    optimizer.step()
    return {name: p.detach() for name, p in method.trainable_parameters().items()}, norm


@pytest.mark.parametrize("name", ["debug:k400-simclr", "debug:k400-bod-simclr", "debug:k400-bod-simclr-single-level"])
def test_a_step_is_the_optimisers_with_the_solvers_gradient(name: str, tmp_path: Path) -> None:
    config = small_config(name, ONE_STEP)
    trained = load_weights(train(config, tmp_path))
    expected, norm = expected_step(config, batches(config, batch=8))
    torch.testing.assert_close({k: trained[k] for k in expected}, expected)
    assert load_metrics(tmp_path)["grad_norm"] == [(1, pytest.approx(float(norm)))]


def test_an_accumulated_step_is_the_mean_of_its_parts(tmp_path: Path) -> None:
    config = small_config("k400-bod-simclr", ONE_STEP | SGD | {"train.grad_accum_steps": 2})
    trained = load_weights(train(config, tmp_path))
    parts = batches(config, batch=4)
    assert len(parts) == 2
    expected, _ = expected_step(config, parts)
    torch.testing.assert_close({k: trained[k] for k in expected}, expected)
    joint_step, _ = expected_step(config, batches(config, batch=8))
    assert any(not torch.allclose(trained[k], joint_step[k], atol=1e-5) for k in joint_step)
    losses = [compute_gradients(build_initial_method(config), clips, config)[0].losses["static"] for clips in parts]
    assert load_metrics(tmp_path)["loss/static"][0][1] == pytest.approx(float(sum(losses)) / 2, rel=1e-5)


def test_clipping_bounds_the_gradient_and_the_log_tells_its_size_before(tmp_path: Path) -> None:
    config = small_config("k400-simclr", ONE_STEP | SGD | {"optim.max_grad_norm": 1e-3})
    trained, before = load_weights(train(config, tmp_path)), build_initial_method(config).trainable_parameters()
    update_norm = (
        torch.stack([(trained[k] - p.detach()).double().square().sum() for k, p in before.items()]).sum().sqrt()
    )
    assert update_norm.item() == pytest.approx(0.1 * 1.9 * 1e-3, rel=1e-3)  # Nesterov's first step is 1 + 0.9 gradients
    assert load_metrics(tmp_path)["grad_norm"][0][1] > 1e-2


def test_embedding_statistics_are_logged_with_losses_and_do_not_affect_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config("k400-bod-moco", {"train.log_every_steps": 3, "optim.epochs": 2})
    trained = load_weights(train(config, tmp_path / "seen"))
    curves = load_metrics(tmp_path / "seen")
    assert {len(curve) for curve in curves.values()} == {2}
    assert [step for step, _ in curves["health/static/effective_rank"]] == [3, 4]
    assert "health/dynamic/batch_knn_accuracy/trajectory" in curves
    monkeypatch.setattr(module, "embedding_stats", lambda *_, **__: {})
    torch.testing.assert_close(load_weights(train(config, tmp_path / "unseen")), trained, rtol=0, atol=0)


def test_rates_and_epochs_are_logged_as_they_were_used(tmp_path: Path) -> None:
    config = small_config(overrides={"optim.epochs": 2, "optim.warmup_epochs": 1.0, "train.log_every_steps": 3})
    curves = load_metrics(train(config, tmp_path))
    assert curves["lr"] == [(3, lr_at_epoch(config.optim, 1.0)), (4, lr_at_epoch(config.optim, 1.5))]
    assert curves["epoch"] == [(3, 1.5), (4, 2.0)]
    assert verb_of_run(tmp_path) == "pretrain"


@pytest.mark.parametrize("name", ["debug:k400-simclr", "debug:k400-bod-simclr"])
def test_bf16_trains_float32_weights_to_about_the_same_loss(name: str, tmp_path: Path) -> None:
    exact = train(small_config(name, ONE_STEP), tmp_path / "exact")
    rounded = train(small_config(name, ONE_STEP | {"train.precision": "bf16"}), tmp_path / "rounded")
    assert all(w.isfinite().all() and w.dtype != torch.bfloat16 for w in load_weights(rounded).values())
    losses = [load_metrics(run) for run in (exact, rounded)]
    loss_name = "loss/whole" if name == "debug:k400-simclr" else "loss/dynamic"
    assert losses[1][loss_name][0][1] == pytest.approx(losses[0][loss_name][0][1], rel=0.2)


@pytest.mark.parametrize("name", ["debug:k400-simclr", "debug:k400-bod-simclr"])
def test_fp16_halves_its_scale_at_each_overflow_and_trains_on(name: str, tmp_path: Path) -> None:
    run = train(small_config(name, {"train.precision": "fp16", "optim.epochs": 4}), tmp_path)
    norms = [norm for _, norm in load_metrics(run)["grad_norm"]]
    state = checkpoint.load_training_state(run)
    assert state is not None
    overflows = sum(not math.isfinite(norm) for norm in norms)
    assert len(norms) == 8
    assert overflows < 8
    assert state["grad_scaler"]["scale"] == 2.0 ** (16 - overflows)
    assert all(w.isfinite().all() and w.dtype != torch.float16 for w in load_weights(run).values())


@pytest.mark.parametrize("name", ["debug:k400-simclr", "debug:k400-bod-simclr"])
def test_a_diverging_run_stops_and_names_the_step_and_the_last_good_checkpoint(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_lr_infinite_after(monkeypatch, num_steps=5)
    with pytest.raises(NonFiniteError) as caught:
        train(small_config(name, SGD | {"optim.epochs": 8}), tmp_path)
    words = str(caught.value)
    state = checkpoint.load_training_state(tmp_path)
    assert state is not None
    assert words.startswith(f"Training diverged at step {state['step'] + 1}: ")
    assert f"Last good checkpoint: {tmp_path / 'checkpoint.safetensors'} (step {state['step']})" in words
    assert "\n" not in words
    assert all(torch.equal(load_weights(tmp_path)[k], v) for k, v in state["model"].items())


def test_the_part_that_is_not_finite_is_named_with_the_rate_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def gradients_with_nan(
        method: Method, clips: Tensor, config: PretrainConfig, **options: Any
    ) -> tuple[MethodOutput, dict[str, Tensor]]:
        output, gradient = compute_gradients(method, clips, config, **options)
        calls.append(1)
        if len(calls) == 2:
            output.losses["dynamic"].fill_(math.nan)
        return output, gradient

    monkeypatch.setattr(module, "compute_gradients", gradients_with_nan)
    config = small_config("k400-bod-simclr", SGD | {"train.checkpoint_every_steps": 100})
    words = r"step 2: loss/dynamic is not finite \(learning rate 0\.05\)\. No checkpoint was written yet"
    with pytest.raises(NonFiniteError, match=words + r".*--optim\.lr"):
        train(config, tmp_path)
    assert len(load_metrics(tmp_path)["lr"]) == 1


def test_prototypes_rest_in_the_first_epoch_only(tmp_path: Path) -> None:
    name = "objectives.whole.prototypes.weight"
    config = small_config("k400-swav")
    before = build_initial_method(config).state_dict()
    after_one_epoch = load_weights(train(config, tmp_path / "one"))
    assert torch.equal(after_one_epoch[name], before[name])
    assert not torch.equal(
        after_one_epoch["online.projector.layers.0.weight"], before["online.projector.layers.0.weight"]
    )
    after_two_epochs = load_weights(train(small_config("k400-swav", {"optim.epochs": 2}), tmp_path / "two"))
    assert not torch.equal(after_two_epochs[name], before[name])


def test_a_run_starts_from_a_file_of_weights_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "start.safetensors"
    other = build_initial_method(small_config("k400-moco", {"train.seed": 5})).online.backbone.state_dict()
    save_file({f"module.{k}": v.contiguous() for k, v in other.items()}, file)
    tiny_rate = {"optim.lr": 1e-30, "method.model.init_weights": str(file), "optim.weight_decay": 0.0}
    trained = load_weights(train(small_config("k400-moco", ONE_STEP | tiny_rate), tmp_path / "run"))
    for name, value in other.items():
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            torch.testing.assert_close(trained[f"online.backbone.{name}"], value, rtol=0, atol=1e-12)
            torch.testing.assert_close(trained[f"target.backbone.{name}"], value, rtol=0, atol=1e-12)
    assert f"Loaded {len(other)} of {len(other)} tensors from {file}" in caplog.text


def test_a_wrong_file_of_weights_can_be_mended_in_the_same_folder(tmp_path: Path) -> None:
    config = small_config("k400-simclr", ONE_STEP | {"method.model.init_weights": str(tmp_path / "nothing.pt")})
    with pytest.raises(StillmotionError, match="does not exist"):
        train(config, tmp_path / "run")
    mended = replace(config, method=replace(config.method, model=replace(config.method.model, init_weights=None)))
    assert load_weights(train(mended, tmp_path / "run"))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write six videos and three files that are not videos."""
    root = write_class_folders(tmp_path_factory.mktemp("videos"), videos_per_class=3, num_frames=6, image_size=16)
    (root / "dark" / "empty.mp4").touch()
    (root / "dark" / "text.mp4").write_text("not a video\n" * 50)
    (root / "light" / "cut.mp4").write_bytes((root / "light" / "0.mp4").read_bytes()[:300])
    return root


def video_config(videos: Path, **more: Any) -> PretrainConfig:
    changes = {"data.path": str(videos), "data.augment": "weak", "optim.batch_size": 4}
    return small_config("k400-simclr", changes | {field.replace("__", "."): value for field, value in more.items()})


BROKEN = ("dark/empty.mp4", "dark/text.mp4", "light/cut.mp4")


@pytest.mark.parametrize("workers", [0, 1])
def test_broken_videos_are_named_counted_and_written_down(
    videos: Path, workers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = {str(videos / name) for name in BROKEN}
    run = train(video_config(videos, data__num_workers=workers, optim__epochs=3), tmp_path)
    words = caplog.messages
    failed = json.loads((run / "failed_videos.json").read_text())
    assert set(failed) == names
    assert all(name in reason for name, reason in failed.items())
    for name in names:
        assert sum(line.startswith(f"Skipped unreadable video: {name}") for line in words) == 1
    first, *lines = words[-1].splitlines()
    assert first == "Skipped 3 unreadable videos; reasons are in failed_videos.json:"
    assert [line.strip() for line in lines] == sorted(names)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_strict_run_stops_at_a_broken_video_with_its_name_only(videos: Path, workers: int, tmp_path: Path) -> None:
    with pytest.raises(VideoError) as caught:
        train(video_config(videos, data__fail_on_unreadable=True, data__num_workers=workers, optim__epochs=3), tmp_path)
    assert "\n" not in str(caught.value)
    assert any(name in str(caught.value) for name in BROKEN)


def in_float64(rank: int, folder: str) -> None:
    """Train BOD-SimCLR in float64, because in float32 the recipe amplifies rounding errors a million times."""
    with single_thread(), pretrain_in_float64():
        config = get_recipe("k400-bod-simclr", debug=True)
        module.PretrainTrainer(config, Path(folder), torch.device("cpu")).train()


@pytest.mark.slow
def test_two_processes_train_batch_norms_and_both_levels_to_the_weights_of_one(tmp_path: Path) -> None:
    gloo.run_on_ranks(in_float64, str(tmp_path / "two"))
    in_float64(0, str(tmp_path / "one"))
    torch.testing.assert_close(load_weights(tmp_path / "two"), load_weights(tmp_path / "one"), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one_with_the_joined_batch(videos: Path, tmp_path: Path) -> None:
    network = "--method.model.stage-channels 4 8 --method.model.projector-hidden-dim 16"
    size = "--data.image-size 16 --data.num-frames 4 --data.frame-stride 1 --data.augment weak"
    rates = "--optim.name sgd --optim.lr 0.1 --optim.batch-size 4 --optim.epochs 3"
    options = f"--recipe k400-simclr --debug --data {videos} {size} {network} {rates} --train.num-threads 1".split()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "-m", "stillmotion", "pretrain", "--out", str(tmp_path / "two"), *options]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, env=one_thread)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("trained: ") == 1
    config = load_config(tmp_path / "two", PretrainConfig)
    train(config, tmp_path / "one")
    start, one, two = (
        build_initial_method(config).state_dict(),
        load_weights(tmp_path / "one"),
        load_weights(tmp_path / "two"),
    )
    torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)
    assert max((one[k] - start[k]).abs().max() for k in one) > 1e-2
    ours, theirs = load_metrics(tmp_path / "one"), load_metrics(tmp_path / "two")
    assert ours.keys() == theirs.keys()
    for name, curve in ours.items():
        assert theirs[name] == [(step, pytest.approx(value, rel=1e-3)) for step, value in curve]
    broken = [json.loads((tmp_path / run / "failed_videos.json").read_text()) for run in ("one", "two")]
    assert broken[0] == broken[1]
    assert len(broken[0]) == len(BROKEN)
