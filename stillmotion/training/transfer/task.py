"""`transfer`: training of a token projection on a frozen image model.

Everything random is a function of (seed, epoch, video), so that a run resumes bit for bit without a generator's state.
"""

import copy
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.cached_tokens import TokenCache
from stillmotion.data.loading.clip_dataset import FramePairDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.data.transforms.augment import pair_augmentation
from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder
from stillmotion.encoders.patch_tokens import HELD_OUT_FILE, PatchTokenModel, encoder_from_tokens, load_adapter
from stillmotion.errors import VideoError, as_video_error
from stillmotion.functional.position_embeddings import crop_windows, enlarged_grid_size, sample_window_corners
from stillmotion.methods.image_to_video import TransferLoss
from stillmotion.models.pretrained.frozen_image_model import load_image_model, resolve_image_model
from stillmotion.planning.dry_run import format_run_cost, measure_training
from stillmotion.training.online_evaluation import OnlineEvaluation
from stillmotion.training.pretrain.token_cache import TOKEN_DIR, token_cache_key
from stillmotion.training.run_dir import check_run_dir, lock_run_dir, open_run_dir
from stillmotion.training.run_log import RunLog
from stillmotion.training.run_setup import build_train_loader
from stillmotion.training.runtime import training_session
from stillmotion.training.trainer import Trainer
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.held_out import MIN_VIDEOS, HeldOutSelection, split_held_out
from stillmotion.utils.device import autocast
from stillmotion.utils.files import write_json
from stillmotion.utils.formatting import LabelValue, format_bytes, format_count, format_names

_ADAMW_BETAS = (0.9, 0.95)
_MAX_CHECKS, _PATIENCE = 20, 5  # checks on held-out videos in a run, and without improvement before it stops
_RNG_WINDOWS, _RNG_WINDOW_CHOICE = 11, 12  # purposes of random numbers


def transfer(config: TransferConfig, run_dir: str | Path, *, cache_dir: str | Path | None = None) -> Path:
    """Train a token projection on a frozen image model; resumes an unfinished run.

    Under torchrun every process calls this.

    Args:
        config: Configuration of the run.
        run_dir: The run directory.
        cache_dir: Directory of the token cache, shared by runs on the same pairs. Default: inside the run directory.

    Returns:
        The run directory.
    """
    config = _check_run(config, run_dir, cache_dir)
    with training_session(config.train) as device, lock_run_dir(run_dir):
        return TransferTrainer(config, Path(run_dir), device, cache_dir).train()


def _check_run(config: TransferConfig, run_dir: str | Path, cache_dir: str | Path | None) -> TransferConfig:
    """Resolve the image model, and check that run and cache can be written and the run overlaps no input."""
    config = replace(config, image_model=resolve_image_model(config.image_model))
    inputs = (config.data.annotations, config.image_model.path, config.train.eval_data)
    check_run_dir(run_dir, config.data.path, *inputs, cache_dir=cache_dir)
    return config


class TransferTrainer(Trainer):
    """Trainer of a token projection on frame pairs.

    Args:
        config: Configuration of the run.
        run_dir: The run directory.
        device: Device to train on.
        cache_dir: Directory of the token cache. Default: inside the run directory.
    """

    model: TransferLoss
    supports_online_eval = True
    held_out: HeldOutSelection | None = None
    _labeled_eval: OnlineEvaluation | None = None

    def __init__(
        self, config: TransferConfig, run_dir: Path, device: torch.device, cache_dir: str | Path | None = None
    ) -> None:
        super().__init__(config, run_dir, device)
        self.config = config
        data = config.data
        images = load_image_model(config.image_model)
        self.token_grid = images.patch_grid(data.image_size, data.image_size)
        self.follows_authors = config.method.convention == "authors"
        self.position_grid = images.position_grid(
            *enlarged_grid_size(*self.token_grid, ratio=config.method.positions.enlarge_ratio),
            resized_from=self.token_grid if self.follows_authors else None,
        ).to(device)
        self.image_model = images.to(device)
        videos = data.open(synthetic=data.synthetic, seed=data.seed)
        training, held_out = split_held_out(videos, data.held_out_fraction)
        if len(held_out):
            self.held_out = HeldOutSelection(Subset(videos, held_out), self.image_model, data.image_size)
        repeats = max(1, -(-data.min_pairs_per_epoch // len(training)))
        is_changed = repeats > 1 or len(held_out)
        self.videos = Subset(videos, np.tile(training, repeats)) if is_changed else videos
        self._videos_message = _describe_videos(videos, training, held_out) if data.held_out_fraction else ""
        self.pairs_per_video = max(1, data.pairs_per_video // repeats) if data.pairs_per_video else 0
        if config.train.eval_every_epochs:
            self._labeled_eval = OnlineEvaluation(
                self, data, self._current_encoder, synthetic_config=data.synthetic, num_workers=data.num_workers
            )
        if config.train.eval_every_epochs or data.held_out_fraction:
            self.online_eval = self._evaluate
        open_run_dir(run_dir, config)
        self.token_cache = self._open_token_cache(cache_dir or run_dir / TOKEN_DIR) if config.can_cache_tokens else None
        self.loader = self._build_loader()
        self.record_dataset(self.videos, root=data.path)
        torch.manual_seed(config.train.seed)
        method = TransferLoss(images.out_features, config.method).to(device)
        if config.method.projection.init == "checkpoint":
            load_adapter(method.projection, config.image_model.path)
        self.setup(method, dict(method.projection.named_parameters()), betas=_ADAMW_BETAS)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run; fewer if it stopped early."""
        return (self.held_out.last_step if self.held_out is not None else 0) or super().total_steps

    def state_dict(self) -> dict[str, Any]:
        """Return optimizer state and the choice by held-out videos for the checkpoint."""
        held_out = {} if self.held_out is None else {"held_out": self.held_out.state_dict()}
        return super().state_dict() | held_out

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the run from a checkpoint."""
        super().load_state_dict(state)
        if self.held_out is not None:
            self.held_out.load_state_dict(state["held_out"])

    def _evaluate(self, log: RunLog) -> None:
        """Check the projection on held-out videos, and evaluate it on labeled ones where asked for."""
        if self._videos_message:
            log.info(self._videos_message)
            self._videos_message = ""
        if self.held_out is not None and not self.held_out.is_final:
            self._check_held_out(self.held_out, log)
        if self._labeled_eval is not None:
            self._labeled_eval(log)

    def _check_held_out(self, held_out: HeldOutSelection, log: RunLog) -> None:
        """Score the projection on held-out videos; at the end of the run, choose the weights or the frozen model."""
        step, is_last = self.global_step, self.global_step >= self.total_steps
        epoch, interval = step // self.steps_per_epoch, max(1, self.optim_config.epochs // _MAX_CHECKS)
        if (frozen := held_out.load()) is None:
            log.info("None of the held-out videos can be read, so the run is not checked on them.")
            held_out.is_final = True
            return
        if step > held_out.last_check and (is_last or epoch % interval == 0):
            scores = held_out.check(self.model, step)
            gain, error = scores.gain_over(frozen)
            metrics = scores.metrics()
            regions, cycles = metrics.values()
            line = (
                f"Held-out videos after step {step}: region accuracy {regions:.3f} ({gain:+.3f} ± {error:.3f} against "
                f"the frozen model), cycle accuracy {cycles:.3f}"
            )
            log.log_evaluation(step, metrics, lines=[line], summary=f"held-out {gain:+.3f}")
            if held_out.num_checks_since_best >= _PATIENCE and not is_last:
                log.info(f"Stopping early: no improvement on held-out videos since step {held_out.best_step}")
                held_out.last_step, is_last = step, True
                log.end_early(step)
        elif step == 0:
            log.log_evaluation(0, frozen.metrics(), lines=[], summary="")
        if is_last:
            results = held_out.select(self.model)
            self._save_checkpoint(0.0, is_last=True)
            process_group.run_on_main(lambda: write_json(self.run_dir / HELD_OUT_FILE, results))

    def _current_encoder(self) -> Encoder:
        projection = copy.deepcopy(self.model.projection).eval()
        return encoder_from_tokens(
            PatchTokenModel(self.image_model, projection, self.config.data.image_size, self.config.image_model)
        ).to(self.device)

    def train_step(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        batch = next(batches)
        pair = epoch % self.pairs_per_video if self.token_cache is not None else 0
        cached = [self.token_cache is not None and self.token_cache.has(i, pair) for i in batch["index"].tolist()]
        self.check_batch(batch, check_clips=not any(cached))
        with autocast(self.device, self.train_config.precision):
            first, second, shifted = self._pair_tokens(batch, epoch)
            output = self.model(first, second, shifted, self.token_grid)
        self.optimizer.zero_grad()
        self.backward(output.total)
        losses = {f"loss/{name}": loss.detach() for name, loss in output.losses.items()}
        return self.optimizer_step(losses | {"cycle_accuracy": output.cycle_accuracy})

    @torch.no_grad()
    def _pair_tokens(self, batch: dict[str, Any], epoch: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Tokens (B, N, D) of both frames, and (B, K, N, D) of the first frame under position windows."""
        videos = batch["index"].tolist()
        clips = batch["clips"][:, 0].transpose(1, 2)  # (B, 2, 3, S, S)
        if self.token_cache is not None:
            views = torch.stack([self._cached_tokens(*item, epoch) for item in zip(videos, clips, strict=True)])
            views = views.to(self.device)
            if views.shape[1] == 2:
                return views[:, 0], views[:, 1], None
            chosen = torch.tensor([self._choose_windows(video, epoch) for video in videos], device=self.device)
            shifted = views[:, 2:].gather(1, chosen[..., None, None].expand(-1, -1, *views.shape[2:]))
            return views[:, 0], views[:, 1], shifted
        frames = clips.to(self.device, non_blocking=True)
        first, second = self.image_model.patch_tokens(frames.transpose(0, 1).flatten(0, 1)).chunk(2)
        # One draw for the batch of all processes, or one for each video.
        draws = [self.global_step] * len(videos) if self.follows_authors else videos
        per_video = [self._position_windows(draw, epoch) for draw in draws]
        if per_video[0] is None:
            return first, second, None
        windows = torch.cat([w for w in per_video if w is not None])
        repeated = frames[:, 0].repeat_interleave(len(windows) // len(frames), 0)
        return first, second, self.image_model.patch_tokens(repeated, windows).unflatten(0, (len(frames), -1))

    def _cached_tokens(self, video: int, frames: Tensor, epoch: int) -> Tensor:
        """Tokens (2 + F, N, D) of a pair, and of its first frame under all F fixed windows."""
        assert self.token_cache is not None
        pair = epoch % self.pairs_per_video
        cached = self.token_cache.read(video, pair)
        if cached is not None:
            return cached
        # One pair at a time and in full precision: cached tokens must not depend on the batch or the run.
        frames = frames.to(self.device)
        with autocast(self.device, "fp32"):
            parts = [self.image_model.patch_tokens(frames)]
            windows = self._position_windows(video, epoch)
            if windows is not None:
                parts.append(self.image_model.patch_tokens(frames[:1].expand(len(windows), -1, -1, -1), windows))
        return self.token_cache.write(video, pair, torch.cat(parts))

    def _position_windows(self, draw: int, epoch: int) -> Tensor | None:
        """Position windows (K, h, w, P) of a draw, which is the number of a video or of a step.

        They are new ones in each epoch, or all fixed ones of a video's pair.
        """
        positions, data = self.config.method.positions, self.config.data
        if positions.window == "none":
            return None
        free = (self.position_grid.shape[0] - self.token_grid[0], self.position_grid.shape[1] - self.token_grid[1])
        index = epoch % self.pairs_per_video if self.pairs_per_video and positions.fixed_windows else epoch
        rng = np.random.default_rng((data.seed, index, draw, _RNG_WINDOWS))
        num_draws = positions.fixed_windows or 1 if positions.window != "multiple" else 1
        num_windows = positions.fixed_windows or positions.num_windows
        corners = [
            c
            for _ in range(num_draws)
            for c in sample_window_corners(free, mode=positions.window, num_windows=num_windows, rng=rng)
        ]
        return crop_windows(self.position_grid, corners, *self.token_grid)

    def _choose_windows(self, video: int, epoch: int) -> list[int]:
        """Indices of the fixed windows of a video's pair that are used in this epoch."""
        positions = self.config.method.positions
        rng = np.random.default_rng((self.config.train.seed, epoch, video, _RNG_WINDOW_CHOICE))
        return rng.permutation(positions.fixed_windows or 1)[: positions.num_views].tolist()

    def _build_loader(self) -> ClipLoader:
        config = self.config
        data, normalization = config.data, self.image_model.normalization
        dataset = FramePairDataset(
            self.videos,
            num_frames=2,
            stride=1,
            num_clips=1,
            augment=pair_augmentation(
                data.image_size,
                scale=data.crop_scale,
                mean=normalization.mean,
                std=normalization.std,
                flip_p=data.flip_prob,
                squash=data.squash,
            ),
            seed=data.seed,
            strict=data.fail_on_unreadable,
            gap=data.frame_gap,
            pairs_per_video=self.pairs_per_video,
            token_cache=self.token_cache,
        )
        return build_train_loader(dataset, config.optim, config.train, num_workers=data.num_workers)

    def _open_token_cache(self, cache_dir: str | Path) -> TokenCache:
        data, positions = self.config.data, self.config.method.positions
        views = 2 + (0 if positions.window == "none" else positions.fixed_windows or 1)
        shape = (
            len(self.videos),
            self.pairs_per_video,
            views,
            self.token_grid[0] * self.token_grid[1],
            self.image_model.out_features,
        )
        synthetic = asdict(data.synthetic) if data.path == "synthetic" else None
        key = {
            **token_cache_key(self.config.image_model, self.image_model, self.videos, synthetic=synthetic),
            "pairs": {
                name: getattr(data, name) for name in ("frame_gap", "image_size", "crop_scale", "flip_prob", "seed")
            }
            | ({"squash": True} if data.squash else {}),
            "positions": {}
            if positions.window == "none"
            else {"crop": positions.window, "ratio": positions.enlarge_ratio}
            | ({"resized_from": self.token_grid} if self.follows_authors else {}),
        }
        return TokenCache(cache_dir, shape, key)


def _describe_videos(videos: VideoDataset, training: np.ndarray, held_out: np.ndarray) -> str:
    """Say how many videos are trained on, at which size, and which are held out."""
    count = format_count(len(training), "video")
    try:
        with as_video_error(videos.name(int(training[0]))):
            height, width = videos.open_video(int(training[0])).get_frames([0]).shape[1:3]
        count += f" (frames of {width}×{height} pixels)"
    except VideoError:
        pass
    if not len(held_out):
        return (
            f"Training on {count}. With fewer than {MIN_VIDEOS} videos none is held out, so the run does not check "
            "whether the frozen model is better."
        )
    names = format_names([Path(videos.name(int(i))).name for i in held_out])
    return f"Training on {count}; {len(held_out)} held out: {names}"


def plan_transfer(
    config: TransferConfig, run_dir: str | Path, *, cache_dir: str | Path | None = None
) -> list[LabelValue]:
    """Estimate `transfer`; tokens are computed and cached in the first epochs.

    Args:
        config: Config of the run.
        run_dir: Run folder.
        cache_dir: Directory of the token cache; it is checked, and not written to.

    Returns:
        Rows of label and value.
    """
    config = _check_run(config, run_dir, cache_dir)
    cost, trainer = measure_training(TransferTrainer, config, run_dir)
    num_image_params = sum(p.numel() for p in trainer.image_model.parameters())
    cost = replace(cost, frozen_params=cost.frozen_params + num_image_params)
    if trainer.token_cache is None:
        return format_run_cost(cost, batch_size=config.optim.batch_size)
    uncached_steps = trainer.steps_per_epoch * trainer.pairs_per_video
    disk = format_bytes(2 * float(np.prod(trainer.token_cache.shape)))
    rows = format_run_cost(cost, batch_size=config.optim.batch_size, uncached_steps=uncached_steps)
    return [("disk space for tokens", disk), *rows]
