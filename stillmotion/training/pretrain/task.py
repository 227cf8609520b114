"""`pretrain`: training of a self-supervised method with any solver, precision and number of micro-batches."""

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import SYNTHETIC
from stillmotion.data.loading.cached_tokens import TokenClipDataset
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.sampler import make_epoch_shuffler
from stillmotion.data.transforms.augment import build_augmentation
from stillmotion.distributed import process_group
from stillmotion.distributed.torchrun import torchrun_world_size
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import Method
from stillmotion.models.backbones.tokens_cnn import TokensCNN
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.optim.bilevel import ParamDict
from stillmotion.planning.dry_run import format_run_cost, measure_training
from stillmotion.planning.extraction_estimate import ForwardWork, decode_samples, estimate_forward_passes
from stillmotion.training.checkpoint import STATE_FILE, load_training_state, seed_from
from stillmotion.training.online_evaluation import OnlineEvaluation
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.collapse_monitor import CollapseMonitor, embedding_stats
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.encoder import encoder_from_state
from stillmotion.training.pretrain.gpu_estimate import GIB, estimate_rows
from stillmotion.training.pretrain.token_cache import (
    TOKEN_DIR,
    build_token_dataset,
    fill_run_token_cache,
    with_resolved_image_model,
)
from stillmotion.training.run_dir import (
    check_resumable,
    check_run_dir,
    load_config,
    lock_run_dir,
    open_run_dir,
    resolve_run_precision,
    verb_of_run,
)
from stillmotion.training.run_log import RunLog
from stillmotion.training.run_setup import build_train_loader, prepare_model
from stillmotion.training.runtime import training_session
from stillmotion.training.tasks import get_recipe
from stillmotion.training.trainer import Trainer
from stillmotion.utils.device import resolve_device, total_memory
from stillmotion.utils.formatting import LabelValue
from stillmotion.utils.progress import progress_bar

logger = logging.getLogger(__name__)
_LAPTOP_RECIPE = "laptop"  # for any videos; its learning rate allows smaller batches


def pretrain(config: PretrainConfig, run_dir: str | Path, *, cache_dir: str | Path | None = None) -> Path:
    """Pretrain a method; resumes an unfinished run. Under torchrun every process calls this.

    Args:
        config: Configuration of the run.
        run_dir: The run directory.
        cache_dir: Directory of the token cache, shared by runs on the same videos. Default: inside the run directory.

    Returns:
        The run directory.
    """
    config = _check_run(config, run_dir, cache_dir)
    with training_session(config.train) as device, lock_run_dir(run_dir):
        return PretrainTrainer(resolve_run_precision(config, run_dir, device), Path(run_dir), device, cache_dir).train()


def _check_run(config: PretrainConfig, run_dir: str | Path, cache_dir: str | Path | None) -> PretrainConfig:
    """Resolve the image model, and check that run and cache can be written and the run overlaps no input."""
    config = with_resolved_image_model(config)
    model = config.method.model
    inputs = (config.data.annotations, model.init_weights, model.image_model.path, config.train.eval_data)
    check_run_dir(run_dir, config.data.path, *inputs, cache_dir=cache_dir)
    return config


class PretrainTrainer(Trainer):
    """Trainer of a self-supervised method.

    Args:
        config: Configuration of the run.
        run_dir: The run directory.
        device: Device to train on.
        cache_dir: Directory of the token cache. Default: inside the run directory.
    """

    model: Method
    supports_online_eval = True

    def __init__(
        self, config: PretrainConfig, run_dir: Path, device: torch.device, cache_dir: str | Path | None = None
    ) -> None:
        data = config.data
        videos = data.open(synthetic=data.synthetic, seed=config.train.seed)
        config = _shrink_batch_to_dataset(config, len(videos), run_dir)
        super().__init__(config, run_dir, device)
        self.config = config
        method = _build_method(config, device, fresh=not (run_dir / STATE_FILE).exists())
        backbone = method.online.backbone
        self.augment = build_augmentation(data.augment, size=data.image_size)
        dataset = _build_dataset(config, videos, augment_in_workers=not _augments_on_device(config, device))
        if isinstance(backbone, TokensCNN):
            dataset = build_token_dataset(config, videos, backbone, cache_dir or run_dir / TOKEN_DIR)
        order = make_epoch_shuffler(videos, data.shuffle_buffer)
        self.loader = build_train_loader(
            dataset, config.optim, config.train, num_workers=data.num_workers, sampler=order
        )
        self.clips_per_step = config.optim.batch_size * config.data.clips_per_video
        if self.steps_per_epoch == 0:
            raise StillmotionError(
                f"An epoch has {self.loader.steps_per_epoch} batches, fewer than --train.grad-accum-steps "
                f"{config.train.grad_accum_steps}. Decrease --train.grad-accum-steps."
            )
        _check_min_batch_size(config)
        if config.train.eval_every_epochs:
            self.online_eval = OnlineEvaluation(
                self, data, self._current_encoder, synthetic_config=data.synthetic, num_workers=data.num_workers
            )
        open_run_dir(run_dir, config)
        if isinstance(dataset, TokenClipDataset) and isinstance(backbone, TokensCNN):
            with progress_bar("tokens"):
                fill_run_token_cache(dataset, config, backbone)
        self.record_dataset(videos, root=data.path)
        self.labels = {target: torch.as_tensor(y) for target, y in videos.labels.items()}
        self.collapse_monitor = CollapseMonitor()
        if config.method.objective.shuffles_keys:
            self.world_size_note = "; MoCo's batch norms see one process's share of the batch, which is different now"
        torch.manual_seed(config.train.seed * 1009 + process_group.get_rank() + 1)
        self.setup(method, method.trainable_parameters())

    def _current_encoder(self) -> Encoder:
        return encoder_from_state(self.config, self.model.state_dict()).to(self.device)

    def train_step(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        # The shuffling of keys over ranks is a function of seed and step, for any number of ranks.
        seed_from(self.config.train.seed, self.global_step)
        results = []
        for _ in range(self.config.train.grad_accum_steps):
            batch = self._to_device(next(batches))
            results.append(self._compute_gradients(batch))
        stats = self._embedding_stats(batch, log) if self.should_log(self.global_step + 1) else {}
        return self._apply_gradients(results, epoch) | stats

    def _to_device(self, batch: Batch) -> Batch:
        """The batch with its clips on the device, where their augmentation may be completed."""
        self.check_batch(batch)
        clips = batch["clips"].to(self.device, non_blocking=True)
        if "augment_params" in batch:
            clips = self.augment.apply_on_device(clips, np.stack(batch["augment_params"]))
        return batch | {"clips": clips}

    def _embedding_stats(self, batch: Batch, log: RunLog) -> dict[str, float]:
        """Embedding statistics of the RGB clips of a batch, before the step."""
        clips = batch["clips"][:, :, :, : self.config.data.num_frames]
        labels = {target: y[batch["index"]] for target, y in self.labels.items()}
        stats = embedding_stats(self.model, clips, labels, precision=self.train_config.precision)
        for warning in self.collapse_monitor.update(stats):
            log.info(f"Step {self.global_step + 1}: {warning}")
        return stats

    def _compute_gradients(self, batch: Batch) -> tuple[Any, ParamDict]:
        epoch, step = divmod(self.global_step, self.steps_per_epoch)
        views, seed, clips = self.model.views, self.config.train.seed, batch["clips"]
        orders = views.draw_orders(seed=seed, epoch=epoch, step=step)
        colors = views.draw_color_matrices(seed=seed, epoch=epoch, indices=batch["index"], num_clips=clips.shape[1])
        loss_scale = self.grad_scaler.get_scale()
        return compute_gradients(self.model, views(clips, orders, colors), self.config, loss_scale=loss_scale)

    def _apply_gradients(self, results: list[tuple[Any, ParamDict]], epoch: int) -> dict[str, float]:
        """Run the optimizer step on the mean of the accumulated gradients; return metrics."""
        frozen, scale = self.model.frozen_parameter_names(epoch), self.grad_scaler.get_scale()
        for name, p in self.trainable_params.items():
            p.grad = None if name in frozen else _mean_tensor([gradient[name] for _, gradient in results]) * scale
        losses = {
            f"loss/{name}": _mean_tensor([output.losses[name] for output, _ in results])
            for name in results[0][0].losses
        }
        metrics = self.optimizer_step(losses)
        self.model.after_step([output.keys for output, _ in results], self.global_step / self.total_steps)
        return metrics


def _build_method(config: PretrainConfig, device: torch.device, *, fresh: bool) -> Method:
    torch.manual_seed(config.train.seed)
    method = Method(config.method)
    if config.method.model.init_weights and fresh:
        report = load_weights(method.online.backbone, config.method.model.init_weights)
        if method.target is not None:
            method.target.load_state_dict(method.online.state_dict())
        if process_group.get_rank() == 0:
            logger.info(str(report))
            if config.method.model.temporal_padding == "replicate":
                logger.info(
                    "Temporal padding is replicate. Most public weights were trained with zero padding: use "
                    "--method.model.temporal-padding zeros for them."
                )
    prepare_model(
        method, method.online.backbone, config.train, device, sync_batch_norm=not config.method.objective.shuffles_keys
    )
    return method


def _shrink_batch_to_dataset(config: PretrainConfig, num_videos: int, run_dir: Path) -> PretrainConfig:
    """The configuration with a batch that fits a small data set, if it has the default batch size of `laptop`.

    A resumed run keeps its batch size, whatever the number of processes.
    """
    batch_size, default = config.optim.batch_size, get_recipe(_LAPTOP_RECIPE).optim.batch_size
    num_parts = process_group.get_world_size() * config.train.grad_accum_steps
    smaller = num_videos - num_videos % num_parts
    if (run_dir / STATE_FILE).exists() and verb_of_run(run_dir) == config.verb:
        smaller = load_config(run_dir, PretrainConfig).optim.batch_size
    is_default = config.recipe == _LAPTOP_RECIPE and batch_size == default
    if not is_default or num_videos >= batch_size or smaller < 2 * config.train.grad_accum_steps:
        return config
    if process_group.get_rank() == 0:
        logger.info(
            "The data set has %d videos, fewer than the batch size %d; using a batch size of %d (--optim.batch-size).",
            num_videos,
            batch_size,
            smaller,
        )
    return replace(config, optim=replace(config.optim, batch_size=smaller))


def _check_min_batch_size(config: PretrainConfig) -> None:
    """Raise if the objective compares the videos of a batch, and a micro-batch has only one."""
    objective = config.method.objective
    micro_batch_size = config.optim.batch_size // config.train.grad_accum_steps
    if micro_batch_size < 2 and not objective.build(config.method.model.embedding_dim).uses_momentum_encoder:
        accumulation = " or decrease --train.grad-accum-steps" if config.train.grad_accum_steps > 1 else ""
        raise StillmotionError(
            f"{objective.title} needs at least 2 videos per batch, got {micro_batch_size}. Increase "
            f"--optim.batch-size{accumulation}."
        )


def _augments_on_device(config: PretrainConfig, device: torch.device) -> bool:
    """Whether color, blur and normalization run on the device."""
    return device.type == "cuda" if config.data.augment_on == "auto" else config.data.augment_on == "device"


def _build_dataset(
    config: PretrainConfig, dataset: VideoDataset, *, augment_in_workers: bool = True
) -> TrainClipDataset:
    data = config.data
    return TrainClipDataset(
        dataset,
        num_frames=data.num_frames + config.method.views.extra_frames,
        stride=data.frame_stride,
        fps=data.fps,
        num_clips=data.clips_per_video,
        augment=build_augmentation(data.augment, size=data.image_size),
        seed=config.train.seed,
        strict=data.fail_on_unreadable,
        augment_in_worker=augment_in_workers,
    )


def _mean_tensor(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).mean(0)


def plan_pretrain(
    config: PretrainConfig, run_dir: str | Path, *, cache_dir: str | Path | None = None
) -> list[LabelValue]:
    """Estimate `pretrain` on the devices of this machine.

    Args:
        config: Config of the run.
        run_dir: Run folder.
        cache_dir: Directory of the token cache; it is checked, and not written to.

    Returns:
        Rows of label and value.
    """
    config = _check_run(config, run_dir, cache_dir)
    check_resumable(Path(run_dir), config)
    if config.method.model.uses_tokens:
        return _plan_token_run(config, run_dir)
    device = resolve_device(config.train.device)
    with tempfile.TemporaryDirectory() as folder:
        trainer = PretrainTrainer(config, Path(folder), device)
    return estimate_rows(
        trainer.config,
        num_videos=0,
        num_devices=torchrun_world_size(),
        memory_gib=total_memory(device) / GIB,
        tflops=0.0,
        device_noun="process" if device.type == "cpu" else "GPU",
        steps_done=int((load_training_state(Path(run_dir)) or {}).get("step", 0)),
    )


def _plan_token_run(config: PretrainConfig, run_dir: str | Path) -> list[LabelValue]:
    """Estimate a run on cached tokens: they are computed once, and its steps are those of a run on synthetic videos."""
    data, batch_size = config.data, config.optim.batch_size
    videos = data.open(synthetic=data.synthetic, seed=config.train.seed)
    if len(videos) < batch_size:
        raise StillmotionError(
            f"{len(videos)} videos are fewer than a batch of {batch_size}; lower --optim.batch-size or add videos"
        )

    def build(config: PretrainConfig, folder: Path, device: torch.device) -> PretrainTrainer:
        synthetic = replace(data.synthetic, num_videos=config.optim.batch_size)
        sample = replace(config.data, path=SYNTHETIC, layout="auto", annotations=None, split=None, synthetic=synthetic)
        return PretrainTrainer(replace(config, data=sample), folder, device)

    def decode(index: int) -> np.ndarray:
        video = videos.open_video(index)
        return video.get_frames(np.linspace(0, len(video) - 1, data.cached_frames).astype(int).tolist())

    cost, trainer = measure_training(build, config, run_dir, build_full_run=False)
    cost = replace(cost, num_videos=len(videos), total_steps=len(videos) // batch_size * config.optim.epochs)
    backbone = trainer.model.online.backbone
    assert isinstance(backbone, TokensCNN)
    tokens = ForwardWork(
        name="tokens",
        amount=f"{len(videos)}, unless their tokens are cached already",
        num_units=len(videos),
        clips=torch.zeros(1, 3, data.cached_frames, data.image_size, data.image_size, device=trainer.device),
        network=backbone,
        forward=backbone.compute_tokens,
        stored_bytes=lambda output: 2.0 * output.numel() * len(videos),
        decode_seconds=decode_samples(len(videos), decode)[1],
    )
    rows = [*estimate_forward_passes([tokens]), ("", ""), ("training", "")]
    return [*rows, *format_run_cost(cost, batch_size=batch_size)]
