"""The one training loop: distribution, precision, checkpoints and resuming, for every method."""

import contextlib
import json
import math
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stillmotion import distributed
from stillmotion.config import Config, DataConfig, differences, load_config, to_json
from stillmotion.data.augment import augment
from stillmotion.data.loader import ClipDataset, ClipLoader
from stillmotion.data.paths import VideoSet
from stillmotion.data.sets import open_dataset
from stillmotion.data.synthetic import SyntheticSet
from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.methods.method import Losses, Method
from stillmotion.methods.moco import MoCoConfig
from stillmotion.nn.backbones import second_order
from stillmotion.nn.weights import load_weights
from stillmotion.optim.bilevel import Weights, hypergradient
from stillmotion.optim.optimizers import build_optimizer, learning_rate
from stillmotion.train import checkpoint
from stillmotion.train.log import RunLog

_PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_TWICE = ("itd-rmad", "aid-cg", "aid-nmn")
_PATIENCE = 20  # steps in a row that fp16 may skip while its scale settles


class Interrupted(Exception):
    """A signal asked the run to stop; it saved itself and can be resumed."""


def pretrain(config: Config, out: str | Path) -> Path:
    """Train as `config` says and return the run folder; a folder with an unfinished run is resumed.

    Under `torchrun` every process calls this; the first one writes.
    """
    folder = Path(out)
    device = choose_device(config.train.device)
    distributed.start(device.type)
    try:
        return _pretrain(config, folder, device)
    finally:
        distributed.stop()


def _pretrain(config: Config, folder: Path, device: torch.device) -> Path:
    first = distributed.rank() == 0
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    state = _open_folder(config, folder, first)
    micro = _micro_batch(config)

    torch.manual_seed(config.train.seed)
    method = Method(config.method)
    if config.method.model.weights and state is None:
        report = load_weights(method.online.backbone, config.method.model.weights)
        if method.target is not None:
            method.target.load_state_dict(method.online.state_dict())
        if first:
            print(report)
    method.to(device).train()
    if distributed.world() > 1 and device.type == "cuda" and not isinstance(config.method.objective, MoCoConfig):
        method = nn.SyncBatchNorm.convert_sync_batchnorm(method)
    weights = method.trainable()
    optimizer = build_optimizer(weights, config.optim)
    scaler = torch.amp.GradScaler(device.type, enabled=config.train.precision == "fp16")
    loader = _loader(config, micro)
    accumulate = config.train.accumulate
    steps_per_epoch = loader.steps_per_epoch // accumulate
    if steps_per_epoch == 0:
        raise StillmotionError(
            f"an epoch has {loader.steps_per_epoch} batches but a step takes {accumulate}; lower --train.accumulate"
        )
    total = steps_per_epoch * config.optim.epochs
    done, broken = 0, {}
    # One process per core may share the machine with others: every rank draws from its own generator.
    torch.manual_seed(config.train.seed * 1009 + distributed.rank() + 1)
    if state is not None:
        method.load_state_dict(state["module"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        done, broken = state["step"], dict(state["broken"])
        if distributed.world() != len(state["random"]):
            raise StillmotionError(
                f"{folder} was trained on {len(state['random'])} processes and cannot go on with "
                f"{distributed.world()} (the same number resumes it bit for bit)"
            )
        checkpoint.set_random_state(state["random"][distributed.rank()])

    def save() -> None:
        everyone = distributed.gather_objects((checkpoint.random_state(), broken))
        for _, others in everyone:
            broken.update(others)
        if first:
            record = {
                "optimizer": optimizer.state_dict(),
                "scaler": scaler.state_dict(),
                "step": done,
                "broken": broken,
                "random": [generators for generators, _ in everyone],
            }
            checkpoint.save(folder, method, record)
        distributed.barrier()

    def save_point() -> str:
        at = checkpoint.load_state(folder)
        return f"{folder / checkpoint.WEIGHTS} of step {at['step']}" if at else "none was written yet"

    skipped = 0
    log = RunLog(folder, total=total, start=done, show=first)
    with log, _signals() as asked:
        if done:
            log.say(f"resuming {folder} at step {done} of {total}")
        while done < total:
            epoch, inside = divmod(done, steps_per_epoch)
            frozen = method.frozen(epoch)
            batches = loader.epoch(epoch, start_step=inside * accumulate)
            for _ in range(inside, steps_per_epoch):
                rate = learning_rate(config.optim, done / steps_per_epoch)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                gradient: Weights = {}
                parts: dict[str, Tensor] = {}
                seen, keys = 0, []
                for _ in range(accumulate):
                    batch = next(batches)
                    for name, reason in batch["broken"]:
                        if name not in broken:
                            broken[name] = reason
                            log.say(f"unreadable, skipped: {reason}")
                    clips = batch["clips"].to(device, non_blocking=True)
                    seen += clips.shape[0] * clips.shape[1]
                    try:
                        new, step_gradient = solve(method, clips, config, weights, scale=scaler.get_scale())
                    except NonFiniteError as error:
                        raise NonFiniteError(
                            f"step {done + 1}: {error}; last good checkpoint: {save_point()}"
                        ) from None
                    keys.append(new.keys)
                    for name, value in new.parts.items():
                        parts[name] = parts.get(name, 0) + value.detach() / accumulate
                    for name, g in step_gradient.items():
                        gradient[name] = gradient.get(name, 0) + g / accumulate

                for name, p in weights.items():
                    p.grad = None if name in frozen else gradient[name] * scaler.get_scale()
                scaler.unscale_(optimizer)
                norm = nn.utils.clip_grad_norm_(weights.values(), config.optim.clip or math.inf)
                names = [*parts, "gradient_norm"]
                values = torch.stack([*parts.values(), norm.to(device)]).float()
                distributed.average_([values])
                numbers = dict(zip(names, values.tolist(), strict=True))
                bad = [name for name, value in numbers.items() if not math.isfinite(value)]
                skipped = skipped + 1 if bad else 0
                if bad and not (scaler.is_enabled() and skipped <= _PATIENCE):
                    raise NonFiniteError(
                        f"step {done + 1}: {', '.join(bad)} is not finite (learning rate {rate:.2g}); last good "
                        f"checkpoint: {save_point()}. Lower --optim.lr, set --optim.clip 1, or use --train.precision fp32"
                    )
                scaler.step(optimizer)
                scaler.update()
                done += 1
                for found in keys:
                    method.commit(found, done / total)
                due = done % config.train.log_every == 0 or done == total
                written = {f"loss/{k}": v for k, v in numbers.items() if k != "gradient_norm"}
                written |= {"gradient_norm": numbers["gradient_norm"], "lr": rate, "epoch": done / steps_per_epoch}
                log.step(done, seen * distributed.world(), written if due else None)
                stop = _agreed(asked)
                if stop or done == total or done % config.train.checkpoint_every == 0:
                    save()
                if stop:
                    raise Interrupted(f"stopped at step {done} of {total}; the same command resumes it")
        if broken:
            log.say(f"{len(broken)} unreadable videos were skipped:")
            for name, reason in sorted(broken.items()):
                log.say(f"  {reason if name in reason else f'{name}: {reason}'}")
    if first:
        (folder / "broken.json").write_text(json.dumps(broken, indent=1))
    return folder


def solve(
    method: Method, clips: Tensor, config: Config, weights: dict[str, nn.Parameter], *, scale: float = 1.0
) -> tuple[Losses, Weights]:
    """The losses of a batch by name and the gradient that the configured solver makes of them."""
    dtype = _PRECISIONS[config.train.precision]
    single = config.solver.how == "single-level"
    found = Losses({}, {})

    def run(at: Weights, level: str) -> Losses:
        with torch.autocast(clips.device.type, dtype=dtype, enabled=dtype is not None):
            return functional_call(method, at, (clips,), {"level": level})

    def inner(at: Weights) -> Tensor:
        parts = run(at, "inner").parts
        for name, value in parts.items():
            found.parts.setdefault(name, value.detach())
        return _total(parts)

    def outer(at: Weights) -> Tensor:
        losses = run(at, "both" if single else "outer")
        found.keys.update(losses.keys)
        found.parts.update({name: value.detach() for name, value in losses.parts.items()})
        return _total(losses.parts)

    twice = second_order(method.online.backbone) if config.solver.how in _TWICE else contextlib.nullcontext()
    with twice:
        gradient = hypergradient(inner, outer, dict(weights), config.solver, precision=dtype, scale=scale)
    return found, gradient


def _total(parts: dict[str, Tensor]) -> Tensor:
    return torch.stack([value.float() for value in parts.values()]).sum()


def open_videos(config: DataConfig, *, seed: int) -> VideoSet:
    """The data set that a configuration names."""
    if config.path == "synthetic":
        return SyntheticSet(config.synthetic, seed=seed)
    return open_dataset(config.path, kind=config.kind, split=config.split, annotations=config.annotations)


def choose_device(name: str) -> torch.device:
    """ "auto" is this process's CUDA device where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            device = torch.device("cuda", device.index or int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise StillmotionError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def _loader(config: Config, micro: int) -> ClipLoader:
    data = config.data
    workers = data.workers if data.workers >= 0 else len(os.sched_getaffinity(0)) // distributed.world()
    dataset = ClipDataset(
        open_videos(data, seed=config.train.seed),
        frames=data.frames,
        stride=data.stride,
        clips=data.clips,
        augment=augment(data.augment, size=data.size),
        seed=config.train.seed,
        strict=data.strict,
    )
    return ClipLoader(
        dataset,
        batch=micro,
        rank=distributed.rank(),
        world=distributed.world(),
        seed=config.train.seed,
        workers=workers,
    )


def _micro_batch(config: Config) -> int:
    """Videos that one process takes at a time."""
    parts = distributed.world() * config.train.accumulate
    if config.optim.batch % parts:
        raise StillmotionError(
            f"a batch of {config.optim.batch} cannot be shared by {distributed.world()} processes × "
            f"{config.train.accumulate} accumulated parts; choose a multiple of {parts} (--optim.batch)"
        )
    return config.optim.batch // parts


def _open_folder(config: Config, folder: Path, first: bool) -> dict[str, Any] | None:
    """Make or check the run folder; the state to resume from, if there is one."""
    if (folder / "config.json").exists():
        there = differences(_comparable(load_config(folder)), _comparable(config))
        if there:
            raise StillmotionError(
                f"{folder} holds another run ({'; '.join(there[:3])}); choose another --out or delete it"
            )
    distributed.barrier()
    if first:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text(json.dumps(to_json(config), indent=1))
        except OSError as error:
            raise StillmotionError(f"cannot write to {folder}: {error.strerror}") from None
    distributed.barrier()
    return checkpoint.load_state(folder)


def _comparable(config: Config) -> Config:
    """A configuration without what may change between two attempts at the same run."""
    data = replace(config.data, workers=0)
    return replace(config, data=data, train=replace(config.train, log_every=0, checkpoint_every=0, threads=0))


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of dying of them; a second Ctrl-C is the ordinary one."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, where signals are somebody else's
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _agreed(asked: list[int]) -> bool:
    """Whether any rank was asked to stop; all of them learn it at the same step."""
    flag = torch.tensor(float(bool(asked)))
    if distributed.world() > 1:
        flag = flag.cuda() if torch.cuda.is_available() else flag
        distributed.average_([flag])
    return bool(flag > 0)
