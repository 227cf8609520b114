"""Original checkpoints, under the names that their authors gave their weights, as models of transformers.

What a file holds is known by name: the network, which is read whole, and what is left behind (heads, decoders, other
networks of its training, the state of an optimiser). Any other name, and any that is missing, is an error.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.nn.families import FAMILIES, Family
from stillmotion.nn.weights import read_all, some

# Names that say where weights are kept, and nothing of whose they are.
_WRAPPERS = {"state_dict", "model", "model_state", "model_state_dict", "module", "net", "weights", "backbone"}
# Names of networks that are trained side by side, of which one is taken.
_NETWORKS = {
    *("student", "teacher", "base_encoder", "momentum_encoder", "encoder", "target_encoder", "predictor"),
    *("visual", "visual_encoder", "visual_encoder_m"),
}
_TRAINING = r"optimizer|opt|scaler|fp16_scaler|scheduler|lr_scheduler|epoch|args|loss"
_BLOCK = re.compile(r"\b(blocks(?:\.\d+)?|resblocks)\.(\d+)\.")  # DINOv2's blocks stand in numbered pieces in training
_WIDE = {1280: 16, 1408: 16, 1664: 16}  # heads of the networks whose heads are wider than the usual 64 channels
_HEAD = 64
_NO_POOL = ("ViTModel", "IJepaModel")  # which would make a pooling layer that nothing here asks
_USUAL_SIZE = 224
_PERIODS = "rope_embed.periods"  # at which rotary positions turn


def import_transformers() -> Any:
    """The library; an error that says how to get it where it is missing."""
    try:
        import transformers
    except ImportError:
        raise StillmotionError(
            "image transformers come from transformers, which is not installed: pip install 'stillmotion[models]'"
        ) from None
    return transformers


def new_model(name: str, options: Mapping[str, Any]) -> Any:
    """A model of transformers with random weights. options: of its configuration, as far as that has such fields."""
    transformers = import_transformers()
    described = getattr(transformers, name.removesuffix("Model") + "Config")
    config = described(**{field: value for field, value in options.items() if hasattr(described, field)})
    return getattr(transformers, name)(config, **{"add_pooling_layer": False} if name in _NO_POOL else {})


def said_family(text: str) -> tuple[str, str]:
    """The family that stands before a path, as in dino:<file>, and the path; "" where none is said."""
    family, sign, path = text.partition(":")
    return (family, path) if sign and family in FAMILIES and not Path(text).exists() else ("", text)


def family_of(path: str | Path) -> str:
    """The family that a file's names tell; an error that lists those it may be of where they do not."""
    place = Path(path)
    about = place.stat()
    names = _names(str(place), about.st_mtime_ns, about.st_size)
    marked = [family for family, row in FAMILIES.items() if row.marks and all(_stands(m, names) for m in row.marks)]
    if len(marked) == 1:
        return marked[0]
    fitting = [family for family, row in FAMILIES.items() if _stands(row.first, names)]
    if not fitting:
        raise StillmotionError(
            f"{path} is no original checkpoint that is known here (it has {some(names)}); those of "
            f"{', '.join(FAMILIES)} are"
        )
    raise StillmotionError(
        f"the names in {path} do not tell whose network it is; say its family, as in {fitting[0]}:{path}: "
        f"{', '.join(fitting)}"
    )


def load_original(path: str | Path, family: str) -> nn.Module:
    """The network of an original checkpoint, as a model of transformers of its sizes, in single precision.

    family: of `FAMILIES`; it says which of the networks in the file is meant, and what it is.
    """
    row = FAMILIES[family]
    own = _masked(_network(path, family, read_all(path)))
    unknown = [name for name in own if name != _PERIODS and _other_name(name, row) is None]
    if row.rotary != (_PERIODS in own):
        unknown += [_PERIODS]
    if unknown:
        what = "lacks a name of" if row.rotary and unknown == [_PERIODS] else f"has {len(unknown)} names unknown to"
        raise StillmotionError(f"{path} {what} a network of {family}: {some(unknown)}{_other(path, family)}")
    try:
        periods = own.pop(_PERIODS, None)
        found = _renamed(own, row)
        with torch.random.fork_rng(devices=[]):
            model = new_model(_class(row, found), _sizes(found, row, periods))
        _load(model, found, path, family)
        if periods is not None:
            model.rope_embeddings.inv_freq.copy_(1 / periods.float())
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except Exception as error:  # weights of odd shapes are stumbled over anywhere
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StillmotionError(f"{path} does not fit a network of {family} ({reason}){_other(path, family)}") from None
    return model.eval()


def _network(path: str | Path, family: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the family's network in a file, by its own names, without what is left behind."""
    row = FAMILIES[family]
    networks: dict[str, dict[str, Tensor]] = defaultdict(dict)
    twice = []
    for name, value in tensors.items():
        network, own = _parted(name)
        twice += [name] if own in networks[network] else []
        networks[network][own] = value
    chosen = next((name for name in row.networks if row.first in networks[name]), None)
    if chosen is None:
        there = [name for name in networks if row.first in networks[name]]
        has = f"those of {', '.join(there)}" if any(there) else some(list(tensors))
        raise StillmotionError(
            f"{path} has no {row.first} of a network of {family} (it has {has}){_other(path, family)}"
        )
    beside = [] if chosen == "" else [name for name in networks[""] if not _is(name, f"{row.beside}|{_TRAINING}")]
    if twice or beside:
        raise StillmotionError(
            f"{path} has names beside its network of {family} that are not known: {some(twice or beside)}"
            f"{_other(path, family)}"
        )
    left = row.left if chosen else f"{row.left}|{row.beside}|{_TRAINING}"
    return {name: value for name, value in networks[chosen].items() if _other_name(name, row) or not _is(name, left)}


def _parted(name: str) -> tuple[str, str]:
    """Of which network a name in a file is, and what it is called there."""
    parts, network = name.split("."), ""
    while len(parts) > 1 and (parts[0] in _WRAPPERS or (parts[0] in _NETWORKS and not network)):
        network = parts[0] if parts[0] in _NETWORKS else network
        parts = parts[1:]
    return network, ".".join(parts)


def _is(name: str, pattern: str) -> bool:
    """Whether the first part of a name is one of a pattern's."""
    return re.fullmatch(pattern, name.split(".")[0]) is not None


def _other_name(name: str, row: Family) -> str | None:
    """What transformers calls a weight; None where that is not known."""
    plain = _BLOCK.sub(lambda m: f"{m[1].partition('.')[0]}.N.", name)
    stem, _, part = plain.rpartition(".")
    other = row.names.get(plain) or (f"{row.names[stem]}.{part}" if stem in row.names else None)
    block = _BLOCK.search(name)
    return other.replace(".N.", f".{block[2]}.") if other and block else other


def _masked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Biases under their masks, which say where DINOv3 has none."""
    masks = {name: mask for name, mask in tensors.items() if name.endswith(".bias_mask") and name[:-5] in tensors}
    found = {name: value for name, value in tensors.items() if name not in masks}
    for name, mask in masks.items():
        bias = found[name.removesuffix("_mask")]
        if mask.shape == bias.shape:
            found[name.removesuffix("_mask")] = torch.where(mask == 0, torch.zeros_like(bias), bias)
        else:
            found[name] = mask  # which is then not known
    return found


def _renamed(tensors: Mapping[str, Tensor], row: Family) -> dict[str, Tensor]:
    """The weights by transformers' names, all of which are known."""
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        other = _other_name(name, row) or name
        if "{qkv}" in other:
            found |= {other.replace("{qkv}", letter): v for letter, v in zip("qkv", value.chunk(3), strict=True)}
        else:
            found[other] = value
    return found


def _class(row: Family, found: Mapping[str, Tensor]) -> str:
    registers = row.model == "Dinov2Model" and "embeddings.register_tokens" in found
    return "Dinov2WithRegistersModel" if registers else row.model


def _sizes(found: dict[str, Tensor], row: Family, periods: Tensor | None) -> dict[str, Any]:
    """The sizes that weights have, by the names of configurations; DINOv3's keys lose a bias of nothing."""
    width, _, patch, _ = next(value for value in found.values() if value.ndim == 4).shape
    middle = next(len(v) for name, v in found.items() if name.endswith(("mlp.fc1.weight", "mlp.up_proj.weight")))
    places = next((v.shape[-2] for name, v in found.items() if "position_embedding" in name), None)
    cells = (_USUAL_SIZE // patch) ** 2 if places is None else places - (row.model != "IJepaModel")
    keys = [name for name in found if name.endswith("k_proj.bias")]
    biased = any(bool(found[name].any()) for name in keys)
    registers = found.get("embeddings.register_tokens")
    if row.rotary and not biased:
        for name in keys:
            del found[name]
    heads = row.heads or _WIDE.get(width) or max(1, width // _HEAD)
    if row.rotary or row.model == "Dinov2Model":
        heads = max(1, width // (_HEAD if periods is None else 4 * len(periods)))
    return {
        "hidden_size": width,
        "num_hidden_layers": 1 + max(int(number) for name in found for number in re.findall(r"\.(\d+)\.", name)),
        "num_attention_heads": heads,
        "intermediate_size": middle,
        "mlp_ratio": middle // width,
        "patch_size": patch,
        "image_size": patch * round(cells**0.5),
        "qkv_bias": any(name.endswith("q_proj.bias") for name in found),
        "key_bias": biased,
        "num_register_tokens": 0 if registers is None else registers.shape[1],
        **row.options,
    }


def _load(model: nn.Module, found: Mapping[str, Tensor], path: str | Path, family: str) -> None:
    wanted = model.state_dict()
    lacking = [name for name in wanted if name not in found and not name.endswith("mask_token")]  # which masks nothing
    unknown = [name for name in found if name not in wanted]
    shapes = [
        f"{name} (file {tuple(found[name].shape)}, network {tuple(wanted[name].shape)})"
        for name in found.keys() & wanted.keys()
        if [n for n in found[name].shape if n > 1] != [n for n in wanted[name].shape if n > 1]
    ]
    told = {"lacks": lacking, "has beyond it": unknown, "has in another shape": sorted(shapes)}
    if any(told.values()):
        words = "; ".join(f"{what} {some(names)}" for what, names in told.items() if names)
        raise StillmotionError(f"{path} does not fit a network of {family}: it {words}{_other(path, family)}")
    with torch.no_grad():
        for name, value in found.items():
            wanted[name].copy_(value.reshape(wanted[name].shape))


def _other(path: str | Path, family: str) -> str:
    """The family that a file's names tell, if they tell another, to stand at the end of an error."""
    try:
        told = family_of(path)
    except StillmotionError:
        told = family
    return "" if told == family else f"; its names are those of {told}: write {told}:{path}"


def _stands(mark: str, names: tuple[str, ...]) -> bool:
    return any(mark in name for name in names)


@functools.lru_cache(maxsize=16)
def _names(path: str, changed: int, size: int) -> tuple[str, ...]:
    """The names in a file, read once while it stays the same."""
    return tuple(read_all(path, values=False))
