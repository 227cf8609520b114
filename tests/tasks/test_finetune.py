"""Fine-tuning runs of a second: what is written, resuming, fairness of the baseline, and what stops a run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import two_processes
from debug_run import debug_run
from debug_videos import write_classes
from exploding import explode
from safetensors.torch import load_file
from small_finetuning import small, tuned
from small_run import one_core, stopping

from stillmotion.config import from_json, verb_of
from stillmotion.data.augment import AUGMENTS
from stillmotion.encoders import load
from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.nn.backbones import create_backbone
from stillmotion.nn.classifier import Classifier
from stillmotion.optim.optimizers import OptimConfig, build_optimizer, set_rate
from stillmotion.recipes import recipe
from stillmotion.tasks.finetune import Finetuning, finetune, finetune_folds
from stillmotion.tasks.start import read_results, train_and_test, unwatched
from stillmotion.train.log import RunLog, read_metrics

# It has no batch norms, whose statistics are each part's own.
TRANSFORMER = "debug-byol-rho4-vit_b"


def weights(folder):
    return load_file(folder / "checkpoint.safetensors")


def assert_same(a, b):
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert read_metrics(a) == read_metrics(b)
    assert read_results(a) == read_results(b)


@pytest.mark.parametrize("stop", [1, 6])
def test_a_stopped_run_resumes_bit_for_bit(tmp_path, stop):
    config = small(head={"dropout": 0.3, "smoothing": 0.1, "mixup": 0.4}, layer_decay=0.7)
    whole = tuned(config, tmp_path / "whole")
    with stopping(stop, 12):
        tuned(config, tmp_path / "stopped")
    assert not (tmp_path / "stopped" / "results.json").exists()
    assert_same(whole, tuned(config, tmp_path / "stopped"))


def test_results_say_what_was_tested(tmp_path):
    run = tuned(small(epochs=1, data={"test_clips": 2, "test_crops": 3, "test_full": True}), tmp_path / "run")
    results = read_results(run)
    assert results["classes"] == ["horizontal", "vertical", "circling", "zooming"]
    table = np.array(results["confusion"])
    assert table.sum() == results["test_videos"] == 16
    assert results["top1"] == pytest.approx(np.trace(table) / 16)
    assert results["top5"] == 1.0
    assert set(read_metrics(run)) == {"loss/class", "accuracy", "gradient_norm", "lr", "epoch"}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_and_accumulated_parts_train(tmp_path, precision):
    run = tuned(small(epochs=1, train={"precision": precision, "accumulate": 2}), tmp_path / "run")
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values())
    assert len(read_metrics(run)["lr"]) == 4


def test_accumulated_parts_give_the_gradient_of_the_whole_batch(tmp_path):
    found = {}
    for parts in (1, 2):
        config = small(head={"mixup": 0.4}, train={"accumulate": parts})
        found[parts] = gradients(0, replace(config, encoder=TRANSFORMER), tmp_path / str(parts))
    for name, gradient in found[1].items():
        torch.testing.assert_close(found[2][name], gradient, atol=1e-6, rtol=1e-4)


def gradients(rank, config, folder):
    """The gradient of every weight in the first step."""
    with one_core():
        run = Finetuning(config, folder, torch.device("cpu"))
        run.advance(run.loader.epoch(0), 0, RunLog(folder, total=1, show=False))
    return {name: p.grad.clone() for name, p in run.weights.items()}


MIXED = small(head={"dropout": 0.3, "smoothing": 0.1, "mixup": 0.4})
TESTED = small(epochs=1, data={"synthetic": replace(small().data.synthetic, videos=9)})


def of_a_rank(rank, folder):
    run = train_and_test(Finetuning(TESTED, folder / "tested", torch.device("cpu")), unwatched)
    return {"gradients": gradients(rank, MIXED, folder / "mixed"), "results": read_results(run)}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return two_processes.run(of_a_rank, tmp_path_factory.mktemp("two"))


def test_two_processes_give_the_gradient_of_one(ranks, tmp_path):
    whole = gradients(0, MIXED, tmp_path / "one")
    for rank in ranks:
        assert rank["gradients"].keys() == whole.keys()
        for name, gradient in whole.items():
            torch.testing.assert_close(rank["gradients"][name], gradient, atol=1e-6, rtol=1e-4)


def test_two_processes_share_the_test(ranks):
    first, second = (rank["results"] for rank in ranks)
    assert first == second
    assert first["test_videos"] == 9
    assert np.array(first["confusion"]).sum() == 9


def test_an_encoder_is_started_from_and_the_untrained_baseline_is_not(tmp_path):
    encoder = debug_run("debug-simclr")
    config = replace(small(lr=1e-12, weight_decay=0.0, epochs=1), encoder=str(encoder))
    from_run = weights(tuned(config, tmp_path / "run"))
    fresh = weights(tuned(replace(config, untrained=True), tmp_path / "fresh"))
    started = weights(encoder)
    name = next(key for key in from_run if key.startswith("backbone.") and from_run[key].ndim == 5)
    torch.testing.assert_close(from_run[name], started[f"online.{name}"])
    assert not torch.allclose(fresh[name], started[f"online.{name}"])
    torch.testing.assert_close(from_run["head.weight"], fresh["head.weight"], atol=1e-6, rtol=0)
    other = replace(config, untrained=True, train=replace(config.train, seed=1))
    assert not torch.allclose(weights(tuned(other, tmp_path / "other"))[name], fresh[name])


def test_a_run_is_an_encoder_even_when_its_own_is_gone(tmp_path):
    run = tuned(replace(small(epochs=1), encoder="debug-bod-simclr"), tmp_path / "run")
    encoder = load(run)
    assert encoder.origin.kind == "finetune"
    saved = weights(run)
    for name, tensor in encoder.backbone.state_dict().items():
        assert torch.equal(tensor, saved[f"backbone.{name}"]), name
    intake = encoder.intake
    assert (intake.frames, intake.stride, intake.size) == (4, 1, 16)
    assert load(f"{run}@size=24").intake.size == 24
    again = tuned(replace(small(lr=1e-12, weight_decay=0.0, epochs=1), encoder=str(run)), tmp_path / "again")
    name = next(key for key in saved if key.startswith("backbone.") and saved[key].ndim == 5)
    torch.testing.assert_close(weights(again)[name], saved[name])
    saved_again = weights(again)
    (run / "encoder.json").unlink()
    kept = load(again)
    assert torch.equal(kept.backbone.state_dict()[name.removeprefix("backbone.")], saved_again[name])


def test_a_run_notes_its_network_and_the_clips_it_takes(tmp_path):
    run = tuned(replace(small(epochs=1), encoder="debug-bod-simclr"), tmp_path / "run")
    assert verb_of(run) == "finetune"
    noted = json.loads((run / "encoder.json").read_text())
    assert set(noted) == {"kind", "encoder", "config", "intake"}
    assert (noted["kind"], noted["encoder"]) == ("recipe", "debug-bod-simclr")
    assert from_json(noted["config"]) == recipe("debug-bod-simclr")
    preset = AUGMENTS[recipe("debug-bod-simclr").data.augment]
    colours = {"mean": list(preset.mean), "std": list(preset.std)}
    assert noted["intake"] == {"frames": 4, "stride": 1, "size": 16, "fps": 0} | colours


def test_a_run_counts_strides_at_the_rate_that_it_is_asked_for(tmp_path):
    timed = tuned(small(epochs=1, data={"fps": 16}), tmp_path / "timed")
    again = tuned(replace(small(epochs=1), encoder=str(timed)), tmp_path / "again")
    counted = tuned(replace(small(epochs=1, data={"fps": 0}), encoder=str(timed)), tmp_path / "counted")
    assert [load(run).intake.fps for run in (timed, again, counted)] == [16, 16, 0]
    assert load(f"{timed}@fps=4").intake.fps == 4


def test_several_clips_of_a_video_are_as_many_steps_more_and_each_has_its_label(tmp_path):
    run = Finetuning(small(data={"clips": 3}), tmp_path / "run", torch.device("cpu"))
    assert run.steps_per_epoch == 3 * 16 // 4
    seen = np.concatenate([batch["index"] for batch in run.loader.epoch(0)])
    assert sorted(seen) == list(range(3 * 16))
    assert np.array_equal(run.labels[seen], run.videos.train_labels[seen % 16])
    first, second = (run.loader.epoch(0) for _ in range(2))
    clips = {int(i): clip for batch in first for i, clip in zip(batch["index"], batch["clips"], strict=True)}
    assert not all(torch.equal(clips[i], clips[i + 16]) for i in range(16))
    assert all(torch.equal(clips[int(i)], clip) for b in second for i, clip in zip(b["index"], b["clips"], strict=True))


def test_a_longer_run_is_tested_again(tmp_path):
    first = read_results(tuned(small(epochs=1), tmp_path / "run"))
    second = read_results(tuned(small(epochs=2), tmp_path / "run"))
    assert (first["steps"], second["steps"]) == (4, 8)


def test_deeper_layers_learn_more_slowly(tmp_path):
    config = OptimConfig(name="sgd", lr=1.0, lr_batch=0, layer_decay=0.5)
    model = Classifier(create_backbone("small_vit", depth=2), 3)
    optimizer = build_optimizer(dict(model.named_parameters()), config, depth=model.depth)
    set_rate(optimizer, 1.0)
    rate = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert rate[id(model.head.weight)] == 1.0
    assert rate[id(model.backbone.blocks[1].mlp.fc1.weight)] == 0.5
    assert rate[id(model.backbone.patch_embed.proj.weight)] == 0.125


def test_mixup_and_dropout_change_with_the_epoch_and_not_with_the_batch(tmp_path):
    with one_core():
        run = Finetuning(small(head={"dropout": 0.5}), tmp_path, torch.device("cpu"))
    together = run._kept([3, 5], 1)
    assert torch.equal(together[1:], run._kept([5], 1))
    assert not torch.equal(together, run._kept([3, 5], 2))
    assert set(together.unique().tolist()) == {0.0, 2.0}


def test_an_unreadable_video_is_named_and_skipped(tmp_path, capsys):
    videos = write_classes(tmp_path / "videos", videos=6)
    (videos / "dark" / "0.mp4").write_bytes(b"nothing")
    config = small(epochs=2, data={"path": str(videos), "target": ""})
    run = tuned(config, tmp_path / "run")
    skipped = (run / "broken.json").read_text() + str(read_results(run)["broken"])
    assert "0.mp4" in skipped
    assert read_results(run)["classes"] == ["dark", "light"]


def fold_list(root):
    """A list with two folds, whose second test half holds a class that is never trained on."""
    lines = ["path,class,split1,split2"]
    for name in ("dark", "light"):
        lines += [
            f"{root}/{name}/{i}.mp4,{name},{'test' if i < 2 else 'train'},{'test' if i >= 4 else 'train'}"
            for i in range(6)
        ]
    (root / "labels.csv").write_text("\n".join([*lines, f"{root}/dark/0.mp4,odd,,test"]))
    return root


def test_folds_are_trained_one_by_one_and_averaged(tmp_path):
    videos = fold_list(write_classes(tmp_path / "videos", videos=6))
    config = small(epochs=1, data={"path": str(videos), "target": ""})
    with one_core():
        folder = finetune_folds(config, tmp_path / "folds", [1, 2])
        before = (folder / "fold1" / "state.pt").read_bytes()
        finetune_folds(config, tmp_path / "folds", [1, 2])
    assert (folder / "fold1" / "state.pt").read_bytes() == before
    results, each = read_results(folder), [read_results(folder / f"fold{i}") for i in (1, 2)]
    assert results["top1"] == pytest.approx(np.mean([r["top1"] for r in each]))
    assert results["folds"] == {"1": each[0], "2": each[1]}


def test_a_loss_that_is_not_finite_stops_the_run_and_names_step_and_part(tmp_path, monkeypatch):
    explode(monkeypatch, after=1)
    with pytest.raises(NonFiniteError, match=r"step 2: backbone.* not finite.*last good checkpoint.*of step 1"):
        tuned(small(), tmp_path / "run")


def test_another_run_in_the_folder_is_not_overwritten(tmp_path):
    tuned(small(epochs=1), tmp_path / "run")
    with pytest.raises(StillmotionError, match=r"holds another run .*head\.smoothing"):
        tuned(small(epochs=1, head={"smoothing": 0.1}), tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": "nowhere"}, "neither a folder nor a recipe"),
        ({"encoder": ""}, "no encoder given"),
        ({"data": {"target": "sound"}}, "choose one of color, shape, brightness, trajectory"),
        ({"data": {"target": ""}}, "several labels; choose one"),
        ({"data": {"path": ""}}, "no videos given"),
        ({"data": {"path": "nowhere"}}, "no such file or folder"),
        ({"optim": {"batch": 17}}, "16 videos are fewer than a batch of 17"),
        ({"optim": {"batch": 5}, "head": {"mixup": 0.2}}, "choose a multiple of 2"),
        ({"data": {"size": 1}}, "least"),
    ],
)
def test_errors_say_what_to_do(tmp_path, change, message):
    config = small()
    for name, value in change.items():
        changed = replace(getattr(config, name), **value) if isinstance(value, dict) else value
        config = replace(config, **{name: changed})
    with pytest.raises(StillmotionError, match=message), one_core():
        finetune(config, tmp_path / "run")


def test_sets_that_cannot_be_learned_from_are_errors(tmp_path):
    videos = fold_list(write_classes(tmp_path / "videos", videos=6))
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "one.mp4").write_bytes((videos / "dark" / "0.mp4").read_bytes())
    cases = {
        "has no labels": {"path": str(flat)},
        "same label, dark": {"path": str(videos / "one.csv")},
        "has no fold 4": {"path": str(videos), "fold": 4},
    }
    (videos / "one.csv").write_text("\n".join(f"dark/{i}.mp4,dark" for i in range(6)))
    for message, data in cases.items():
        with pytest.raises(StillmotionError, match=message):
            finetune(small(data={"target": "", **data}), tmp_path / "run")
    one_split = "path,class,split\n" + "\n".join(
        f"{n}/{i}.mp4,{n},{'test' if i < 2 else 'train'}" for n in ("dark", "light") for i in range(6)
    )
    (videos / "split.csv").write_text(one_split)
    with pytest.raises(StillmotionError, match=r"folds 1 and 2 of .* are the same"):
        finetune_folds(small(data={"target": "", "path": str(videos / "split.csv")}), tmp_path / "run", [1, 2])
