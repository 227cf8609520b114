"""Training of a projection on frozen tokens.

Everything random is a function of (seed, epoch, video), so that a run resumes bit for bit with no generator to restore.
"""

import copy
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion.config.transfer import TransferConfig
from stillmotion.data.loader import Batch, ClipLoader
from stillmotion.data.pairs import PairDataset, TokenStore, pair_augment
from stillmotion.encoders import Encoder
from stillmotion.encoders.runs import projecting
from stillmotion.encoders.tokens import Tokens
from stillmotion.functional.positions import cut_windows, draw_corners, enlarged
from stillmotion.methods.transfer import Transfer
from stillmotion.nn.images import load_images, locate_images
from stillmotion.tasks.between import Between
from stillmotion.tasks.tokens import TOKENS, told
from stillmotion.train.folder import held, open_folder, spare_inputs
from stillmotion.train.log import RunLog
from stillmotion.train.process import computing
from stillmotion.train.run import Run, shared_loader

_BETAS = (0.9, 0.95)
_FIXED, _CHOICE = 11, 12  # what a generator is for, beside seed, epoch and video


def transfer(config: TransferConfig, out: str | Path, *, cache: str | Path | None = None) -> Path:
    """Train a projection as `config` says and return the run folder; a folder with an unfinished run is resumed.

    cache: where tokens are kept, in place of the run's own folder; runs on the same pairs share them.
    Under `torchrun` every process calls this; the first one writes.
    """
    config.data.check_given()
    config = replace(config, images=locate_images(config.images))
    spare_inputs(out, config.data.path, config.data.annotations, config.images.path, config.train.evaluate_data)
    with computing(config.train) as device, held(out):
        return Transferring(config, Path(out), device, cache).train()


class Transferring(Run):
    """The frozen model, the projection, its optimiser and pairs of frames."""

    method: Transfer
    evaluates = True

    def __init__(self, config: TransferConfig, folder: Path, device: torch.device, cache: str | Path | None) -> None:
        super().__init__(config, folder, device)
        self.config = config
        data = config.data
        images = load_images(config.images)
        self.grid = images.grid(data.size, data.size)
        self.places = images.positions(*enlarged(*self.grid, ratio=config.method.positions.ratio)).to(device)
        self.images = images.to(device)
        self.videos = data.open(drawn=data.synthetic, seed=data.seed)
        if config.train.evaluate_every:
            self.between = Between(self, data, self._encoder, drawn=data.synthetic, workers=data.workers)
        open_folder(folder, config)
        self.store = self._token_store(cache or folder / TOKENS) if config.keeps_tokens else None
        self.loader = self._pairs()
        self.note_videos(self.videos, root=data.path)
        torch.manual_seed(config.train.seed)
        method = Transfer(images.width, config.method).to(device)
        self.equip(method, dict(method.projection.named_parameters()), betas=_BETAS)

    def _encoder(self) -> Encoder:
        projection = copy.deepcopy(self.method.projection).eval()
        return projecting(Tokens(self.images, projection, self.config.data.size, self.config.images)).to(self.device)

    def advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        batch = next(batches)
        self.note_broken(batch, log)
        pair = epoch % self.config.data.pairs if self.store is not None else 0
        if self.store is None or not any(self.store.has(video, pair) for video in batch["index"].tolist()):
            self.look_at(batch["clips"])
        first, second, back = self._tokens(batch, epoch)
        found = self.method(first, second, back, self.grid)
        self.optimizer.zero_grad()
        self.differentiate(found.total)
        losses = {f"loss/{name}": part.detach() for name, part in found.parts.items()}
        return self.move(losses | {"cycle_accuracy": found.accuracy})

    @torch.no_grad()
    def _tokens(self, batch: dict[str, Any], epoch: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Of t1 and t2 (B, N, D), and of t1 under windows of positions (B, K, N, D)."""
        videos = batch["index"].tolist()
        clips = batch["clips"][:, 0].transpose(1, 2)  # (B, 2, 3, S, S)
        if self.store is not None:
            views = torch.stack([self._kept(*item, epoch) for item in zip(videos, clips, strict=True)])
            views = views.to(self.device)
            if views.shape[1] == 2:
                return views[:, 0], views[:, 1], None
            chosen = torch.tensor([self._choice(video, epoch) for video in videos], device=self.device)
            back = views[:, 2:].gather(1, chosen[..., None, None].expand(-1, -1, *views.shape[2:]))
            return views[:, 0], views[:, 1], back
        frames = clips.to(self.device, non_blocking=True)
        first, second = self.images.tokens(frames.transpose(0, 1).flatten(0, 1)).chunk(2)
        places = [self._windows(video, epoch) for video in videos]
        if places[0] is None:
            return first, second, None
        windows = torch.cat([p for p in places if p is not None])
        again = frames[:, 0].repeat_interleave(len(windows) // len(frames), 0)
        return first, second, self.images.tokens(again, windows).unflatten(0, (len(frames), -1))

    def _kept(self, video: int, frames: Tensor, epoch: int) -> Tensor:
        """Tokens (2 + F, N, D) of a pair and of its first frame under all its fixed windows."""
        assert self.store is not None
        pair = epoch % self.config.data.pairs
        kept = self.store.read(video, pair)
        if kept is not None:
            return kept
        # One pair at a time: what is kept must not depend on the batch it came in.
        frames = frames.to(self.device)
        parts = [self.images.tokens(frames)]
        windows = self._windows(video, epoch)
        if windows is not None:
            parts.append(self.images.tokens(frames[:1].expand(len(windows), -1, -1, -1), windows))
        return self.store.write(video, pair, torch.cat(parts))

    def _windows(self, video: int, epoch: int) -> Tensor | None:
        """Windows of positions (K, h, w, P) for a video: new ones in each epoch, or all fixed ones of its pair."""
        places, data = self.config.method.positions, self.config.data
        if places.crop == "none":
            return None
        spare = (self.places.shape[0] - self.grid[0], self.places.shape[1] - self.grid[1])
        turn = epoch % data.pairs if data.pairs and places.fixed else epoch
        rng = np.random.default_rng((data.seed, turn, video, _FIXED))
        draws = places.fixed or 1 if places.crop != "multiple" else 1
        number = places.fixed or places.number
        corners = [c for _ in range(draws) for c in draw_corners(spare, how=places.crop, number=number, rng=rng)]
        return cut_windows(self.places, corners, *self.grid)

    def _choice(self, video: int, epoch: int) -> list[int]:
        """Which of the fixed windows of a video's pair this epoch sees."""
        places = self.config.method.positions
        rng = np.random.default_rng((self.config.train.seed, epoch, video, _CHOICE))
        return rng.permutation(places.fixed or 1)[: places.windows].tolist()

    def _pairs(self) -> ClipLoader:
        config = self.config
        data, seen = config.data, self.images.normalisation
        dataset = PairDataset(
            self.videos,
            frames=2,
            stride=1,
            clips=1,
            augment=pair_augment(data.size, area=data.area, mean=seen.mean, std=seen.std, flip=data.flip),
            seed=data.seed,
            strict=data.strict,
            gap=data.gap,
            pairs=data.pairs,
            known=self.store,
        )
        return shared_loader(dataset, config.optim, config.train, workers=data.workers)

    def _token_store(self, folder: str | Path) -> TokenStore:
        data, places = self.config.data, self.config.method.positions
        views = 2 + (0 if places.crop == "none" else places.fixed or 1)
        shape = (len(self.videos), data.pairs, views, self.grid[0] * self.grid[1], self.images.width)
        drawn = asdict(data.synthetic) if data.path == "synthetic" else None
        about = {
            **told(self.config.images, self.images, self.videos, drawn=drawn),
            "pairs": {name: getattr(data, name) for name in ("gap", "size", "area", "flip", "seed")},
            "positions": {} if places.crop == "none" else {"crop": places.crop, "ratio": places.ratio},
        }
        return TokenStore(folder, shape, about)
