"""Weights from files, matched by name and shape, with a report of what was and was not found.

Files are .safetensors, or .pt, .pth and .pyth read by `torch.load(weights_only=True)`; of a TorchScript archive the
tensors are read and its code is not. Nothing in a file is executed. Names are matched by suffix, under the one prefix
that fits best ("", "module.", "online.backbone.", …). PyTorchVideo's names of Slow-R50 are turned into SlowFast's.
Tensors of another shape are reported and never inflated or cut."""

import argparse
import pickle
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.models.pretrained.torchscript_reader import is_torchscript, read_torchscript_tensors
from stillmotion.utils.formatting import format_names

# Where training programs put the weights within what they save, in the order in which they are looked for.
_STATE_DICT_KEYS = (
    "state_dict",
    "model_state",
    "model_state_dict",
    "model",
    "module",
    "net",
    "weights",
    "encoder",
    "backbone",
    "teacher",
)
# What a network may have beyond its backbone: absent from a file, these keep their values.
_OPTIONAL_HEADS = ("head", "fc", "classifier", "projector", "predictor", "prototypes")
# Copies that follow the trained network; preferred only where the trained one is absent.
_MOMENTUM_COPIES = re.compile(r"(^|[._])(target|momentum|teacher|ema|hist|encoder_k|key)([._]|$)")


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What became of each tensor.

    prefix: what stood before the matched names in the file.
    matched, missing: names of the module. unexpected: names in the file.
    mismatched: (name in the module, its shape, the shape in the file).
    """

    path: str
    prefix: str
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]

    def __str__(self) -> str:
        total = len(self.matched) + len(self.missing) + len(self.mismatched)
        under = f" under {self.prefix!r}" if self.prefix else ""
        lines = [f"{len(self.matched)} of {total} tensors loaded from {self.path}{under}"]
        if self.missing:
            lines.append(f"missing from the file: {format_names(self.missing)}")
        if self.mismatched:
            shapes = [f"{name} (file {found}, network {wanted})" for name, wanted, found in self.mismatched]
            lines.append(f"of another shape: {format_names(shapes)}")
        if self.unexpected:
            lines.append(f"not used: {format_names(self.unexpected)}")
        return "; ".join(lines)


def load_weights(module: nn.Module, path: str | Path, *, prefix: str | None = None) -> LoadReport:
    """Load every tensor of `module` from a file, or raise and leave the module as it was.

    module: a backbone, or a network with heads; heads that the file lacks keep their values.
    prefix: where in the file the names start, such as "target.backbone."; by default the best match.
    Returns the report; its text is fit for printing.
    """
    found = read_state_dict(path)
    wanted = module.state_dict()
    if prefix is None:
        prefix = _best_prefix(found, wanted)
    sources = _match_names(found, wanted, prefix)
    matched = {name: found[key] for name, key in sources.items() if found[key].shape == wanted[name].shape}
    report = LoadReport(
        path=str(path),
        prefix=prefix,
        matched=tuple(matched),
        missing=tuple(name for name in wanted if name not in sources),
        unexpected=tuple(sorted(found.keys() - {sources[name] for name in matched})),
        mismatched=tuple(
            (name, tuple(wanted[name].shape), tuple(found[key].shape))
            for name, key in sources.items()
            if name not in matched
        ),
    )
    lacking = [name for name in wanted if name not in matched and not _is_optional(name)]
    if lacking:
        raise StillmotionError(
            f"{path} does not fit {type(module).__name__}: {len(lacking)} of its tensors would not be loaded "
            f"({format_names(lacking)}). {report}. Choose the backbone that the file was made with"
        )
    with torch.no_grad():
        for name, value in matched.items():
            wanted[name].copy_(value)
    return report


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The named tensors in a file, wherever in it they are kept."""
    content = _read_file(Path(path))
    tensors = _find_tensors(content)
    if not tensors:
        keys = format_names([str(key) for key in content]) if isinstance(content, Mapping) else type(content).__name__
        raise StillmotionError(f"{path} holds no named tensors (it holds {keys}); give a checkpoint's path")
    return tensors


def read_all_tensors(path: str | Path, *, with_values: bool = True) -> dict[str, Tensor]:
    """Every tensor in a file, by its name and by those of what it is kept in: `teacher.backbone.norm.weight`.

    with_values: False gives names and shapes alone.
    """
    return dict(_flatten(_read_file(Path(path), with_values=with_values, memory_map=True), ""))


def _read_file(path: Path, *, with_values: bool = True, memory_map: bool = False) -> Any:
    """What a file holds. values: as in `read_all`. mapped: they are read when they are asked for, where that can be."""
    if not path.is_file():
        raise StillmotionError(f"there is no file {path}; give the path of a .safetensors, .pt, .pth or .pyth file")
    if path.suffix == ".safetensors":
        try:
            if with_values:
                return safetensors.torch.load_file(path)
            with safetensors.safe_open(path, "pt") as opened:
                return {name: torch.empty(opened.get_slice(name).get_shape(), device="meta") for name in opened.keys()}
        except (safetensors.SafetensorError, OSError) as error:
            raise StillmotionError(f"{path} is not a readable safetensors file ({error}); fetch it again") from error
    try:
        if is_torchscript(path):
            return read_torchscript_tensors(path, with_values=with_values)
        # A namespace holds the options of the program that saved it; unpickled, it is data and nothing else.
        with torch.serialization.safe_globals([argparse.Namespace]):
            place, memory_map = ("cpu", memory_map and zipfile.is_zipfile(path)) if with_values else ("meta", False)
            return torch.load(path, map_location=place, weights_only=True, mmap=memory_map)
    except pickle.UnpicklingError as error:
        raise StillmotionError(
            f"{path} is damaged, or holds objects that could execute code, and was not read; "
            "fetch it again, or save its state dict alone where you trust it"
        ) from error
    except (Interrupted, MemoryError):
        raise
    except Exception as error:  # in a damaged file, torch's reader stumbles over anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise StillmotionError(f"{path} is not a readable checkpoint ({reason}); fetch it again") from error


def _flatten(content: Any, prefix: str) -> Iterator[tuple[str, Tensor]]:
    for name, value in content.items() if isinstance(content, Mapping) else ():
        if isinstance(value, Tensor):
            yield f"{prefix}{name}", value
        else:
            yield from _flatten(value, f"{prefix}{name}.")


def _find_tensors(content: Any) -> dict[str, Tensor]:
    if not isinstance(content, Mapping):
        return {}
    tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if tensors:
        return tensors
    for key in _STATE_DICT_KEYS:
        tensors = _find_tensors(content.get(key))
        if tensors:
            return tensors
    return {}


def _best_prefix(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """The prefix under which most tensors have the right name and shape."""
    score: Counter[str] = Counter()
    for key, value in found.items():
        for cut in (0, *(match.end() for match in re.finditer(r"\.", key))):
            name = _rename(key[cut:], wanted)
            if name in wanted and wanted[name].shape == value.shape:
                score[key[:cut]] += 1
    if not score:
        return ""
    return min(score, key=lambda p: (-score[p], _MOMENTUM_COPIES.search(p) is not None, len(p), p))


def _match_names(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], prefix: str) -> dict[str, str]:
    """For each name of the module that the file has under `prefix`, its key in the file."""
    keys = [key for key in found if key.startswith(prefix)]
    sources = {name: key for key in keys if (name := _rename(key[len(prefix) :], wanted)) in wanted}
    return {name: sources[name] for name in wanted if name in sources}


def _rename(name: str, wanted: Mapping[str, Tensor]) -> str:
    """The module's name for what a file calls `name`: the same one, or the one of another naming."""
    if name in wanted:
        return name
    for rename in (_slowfast_name, _videomae_name):
        other = rename(name)
        if other in wanted:
            return other
    return name


def _slowfast_name(name: str) -> str:
    """PyTorchVideo's `blocks.1.res_blocks.0.branch2.conv_a` as SlowFast's `s2.pathway0_res0.branch2.a`."""
    if stem := re.fullmatch(r"blocks\.0\.(conv|norm)\.(\w+)", name):
        part, field = stem.groups()
        return f"s1.pathway0_stem.{'bn' if part == 'norm' else part}.{field}"
    block = re.fullmatch(
        r"blocks\.([1-4])\.res_blocks\.(\d+)\.(branch1|branch2)[._](conv|norm)(?:_([abc]))?\.(\w+)", name
    )
    if block is None:
        return name
    stage, index, branch, part, letter, field = block.groups()
    where = f"{branch}.{letter}" if letter else branch
    return f"s{int(stage) + 1}.pathway0_res{index}.{where}{'_bn' if part == 'norm' else ''}.{field}"


def _videomae_name(name: str) -> str:
    """The norm of VideoMAE's fine-tuned models, `fc_norm`, as the `norm` of its pre-trained ones."""
    return name.removeprefix("fc_") if name.startswith("fc_norm.") else name


def _is_optional(name: str) -> bool:
    return name.split(".")[0] in _OPTIONAL_HEADS or name.endswith("num_batches_tracked")
