"""Original checkpoints, under the names that their authors gave their weights, as models of transformers.

What a file holds is known by name: the network, which is read whole, and what is left behind (heads, decoders, other
networks of its training, the state of an optimiser). Any other name, and any that is missing, is an error."""

import functools
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.models.input_config import DEFAULT_IMAGE_SIZE
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES, CheckpointFamily
from stillmotion.models.pretrained.weight_loading import read_all_tensors
from stillmotion.utils.formatting import format_names

# Names that say where weights are kept, and nothing of whose they are.
_WRAPPER_KEYS = {"state_dict", "model", "model_state", "model_state_dict", "module", "net", "weights", "backbone"}
# Names of networks that are trained side by side, of which one is taken.
_NETWORKS = {
    *("student", "teacher", "base_encoder", "momentum_encoder", "encoder", "target_encoder", "predictor"),
    *("visual", "visual_encoder", "visual_encoder_m"),
}
_TRAINING_STATE_KEYS = r"optimizer|opt|scaler|fp16_scaler|scheduler|lr_scheduler|epoch|args|loss"
_BLOCK = re.compile(r"\b(blocks(?:\.\d+)?|resblocks)\.(\d+)\.")  # DINOv2's blocks stand in numbered pieces in training
_HEADS_BY_WIDTH = {
    1280: 16,
    1408: 16,
    1664: 16,
}  # heads of the networks whose heads are wider than the usual 64 channels
_HEAD_DIM = 64
_NO_POOL = ("ViTModel", "IJepaModel")  # which would make a pooling layer that nothing here asks
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


def build_transformers_model(class_name: str, config_options: Mapping[str, Any]) -> Any:
    """A model of transformers with random weights. options: of its configuration, as far as that has such fields."""
    transformers = import_transformers()
    described = getattr(transformers, class_name.removesuffix("Model") + "Config")
    config = described(**{field: value for field, value in config_options.items() if hasattr(described, field)})
    return getattr(transformers, class_name)(config, **{"add_pooling_layer": False} if class_name in _NO_POOL else {})


def split_family_prefix(spec: str) -> tuple[str, str]:
    """The family that stands before a path, as in dino:<file>, and the path; "" where none is said."""
    family, sign, path = spec.partition(":")
    return (family, path) if sign and family in CHECKPOINT_FAMILIES and not Path(spec).exists() else ("", spec)


def detect_family(path: str | Path) -> str:
    """The family that a file's names tell; an error that lists those it may be of where they do not."""
    place = Path(path)
    about = place.stat()
    names = _names(str(place), about.st_mtime_ns, about.st_size)
    marked = [
        family
        for family, row in CHECKPOINT_FAMILIES.items()
        if row.marker_keys and all(_any_key_contains(m, names) for m in row.marker_keys)
    ]
    if len(marked) == 1:
        return marked[0]
    fitting = [family for family, row in CHECKPOINT_FAMILIES.items() if _any_key_contains(row.patch_embed_key, names)]
    if not fitting:
        raise StillmotionError(
            f"{path} is no original checkpoint that is known here (it has {format_names(names)}); those of "
            f"{', '.join(CHECKPOINT_FAMILIES)} are"
        )
    raise StillmotionError(
        f"the names in {path} do not tell whose network it is; say its family, as in {fitting[0]}:{path}: "
        f"{', '.join(fitting)}"
    )


def load_original_checkpoint(path: str | Path, family: str) -> nn.Module:
    """The network of an original checkpoint, as a model of transformers of its sizes, in single precision.

    family: of `FAMILIES`; it says which of the networks in the file is meant, and what it is.
    """
    row = CHECKPOINT_FAMILIES[family]
    own = _apply_bias_masks(_select_network(path, family, read_all_tensors(path)))
    unknown = [name for name in own if name != _PERIODS and _transformers_key(name, row) is None]
    if row.uses_rope != (_PERIODS in own):
        unknown += [_PERIODS]
    if unknown:
        what = "lacks a name of" if row.uses_rope and unknown == [_PERIODS] else f"has {len(unknown)} names unknown to"
        raise StillmotionError(
            f"{path} {what} a network of {family}: {format_names(unknown)}{_other_family_hint(path, family)}"
        )
    try:
        periods = own.pop(_PERIODS, None)
        found = _convert_keys(own, row)
        with torch.random.fork_rng(devices=[]):
            model = build_transformers_model(_model_class(row, found), _infer_config(found, row, periods))
        _load(model, found, path, family)
        if periods is not None:
            model.rope_embeddings.inv_freq.copy_(1 / periods.float())
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except Exception as error:  # weights of odd shapes are stumbled over anywhere
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StillmotionError(
            f"{path} does not fit a network of {family} ({reason}){_other_family_hint(path, family)}"
        ) from None
    return model.eval()


def _select_network(path: str | Path, family: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the family's network in a file, by its own names, without what is left behind."""
    row = CHECKPOINT_FAMILIES[family]
    networks: dict[str, dict[str, Tensor]] = defaultdict(dict)
    twice = []
    for name, value in tensors.items():
        network, own = _split_key(name)
        twice += [name] if own in networks[network] else []
        networks[network][own] = value
    chosen = next((name for name in row.network_prefixes if row.patch_embed_key in networks[name]), None)
    if chosen is None:
        there = [name for name in networks if row.patch_embed_key in networks[name]]
        has = f"those of {', '.join(there)}" if any(there) else format_names(list(tensors))
        raise StillmotionError(
            f"{path} has no {row.patch_embed_key} of a network of {family} (it has {has}){_other_family_hint(path, family)}"
        )
    beside = (
        []
        if chosen == ""
        else [name for name in networks[""] if not _first_part_matches(name, f"{row.ignored_siblings}|{_TRAINING_STATE_KEYS}")]
    )
    if twice or beside:
        raise StillmotionError(
            f"{path} has names beside its network of {family} that are not known: {format_names(twice or beside)}"
            f"{_other_family_hint(path, family)}"
        )
    left = row.ignored_keys if chosen else f"{row.ignored_keys}|{row.ignored_siblings}|{_TRAINING_STATE_KEYS}"
    return {
        name: value
        for name, value in networks[chosen].items()
        if _transformers_key(name, row) or not _first_part_matches(name, left)
    }


def _split_key(name: str) -> tuple[str, str]:
    """Of which network a name in a file is, and what it is called there."""
    parts, network = name.split("."), ""
    while len(parts) > 1 and (parts[0] in _WRAPPER_KEYS or (parts[0] in _NETWORKS and not network)):
        network = parts[0] if parts[0] in _NETWORKS else network
        parts = parts[1:]
    return network, ".".join(parts)


def _first_part_matches(name: str, pattern: str) -> bool:
    """Whether the first part of a name is one of a pattern's."""
    return re.fullmatch(pattern, name.split(".")[0]) is not None


def _transformers_key(name: str, row: CheckpointFamily) -> str | None:
    """What transformers calls a weight; None where that is not known."""
    plain = _BLOCK.sub(lambda m: f"{m[1].partition('.')[0]}.N.", name)
    stem, _, part = plain.rpartition(".")
    other = row.key_map.get(plain) or (f"{row.key_map[stem]}.{part}" if stem in row.key_map else None)
    block = _BLOCK.search(name)
    return other.replace(".N.", f".{block[2]}.") if other and block else other


def _apply_bias_masks(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
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


def _convert_keys(tensors: Mapping[str, Tensor], row: CheckpointFamily) -> dict[str, Tensor]:
    """The weights by transformers' names, all of which are known."""
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        other = _transformers_key(name, row) or name
        if "{qkv}" in other:
            found |= {other.replace("{qkv}", letter): v for letter, v in zip("qkv", value.chunk(3), strict=True)}
        else:
            found[other] = value
    return found


def _model_class(row: CheckpointFamily, found: Mapping[str, Tensor]) -> str:
    registers = row.model_class == "Dinov2Model" and "embeddings.register_tokens" in found
    return "Dinov2WithRegistersModel" if registers else row.model_class


def _infer_config(found: dict[str, Tensor], row: CheckpointFamily, periods: Tensor | None) -> dict[str, Any]:
    """The sizes that weights have, by the names of configurations; DINOv3's keys lose a bias of nothing."""
    width, _, patch, _ = next(value for value in found.values() if value.ndim == 4).shape
    middle = next(len(v) for name, v in found.items() if name.endswith(("mlp.fc1.weight", "mlp.up_proj.weight")))
    places = next((v.shape[-2] for name, v in found.items() if "position_embedding" in name), None)
    cells = (DEFAULT_IMAGE_SIZE // patch) ** 2 if places is None else places - (row.model_class != "IJepaModel")
    keys = [name for name in found if name.endswith("k_proj.bias")]
    biased = any(bool(found[name].any()) for name in keys)
    registers = found.get("embeddings.register_tokens")
    if row.uses_rope and not biased:
        for name in keys:
            del found[name]
    heads = row.num_heads or _HEADS_BY_WIDTH.get(width) or max(1, width // _HEAD_DIM)
    if row.uses_rope or row.model_class == "Dinov2Model":
        heads = max(1, width // (_HEAD_DIM if periods is None else 4 * len(periods)))
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
        **row.config_options,
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
        words = "; ".join(f"{what} {format_names(names)}" for what, names in told.items() if names)
        raise StillmotionError(
            f"{path} does not fit a network of {family}: it {words}{_other_family_hint(path, family)}"
        )
    with torch.no_grad():
        for name, value in found.items():
            wanted[name].copy_(value.reshape(wanted[name].shape))


def _other_family_hint(path: str | Path, family: str) -> str:
    """The family that a file's names tell, if they tell another, to stand at the end of an error."""
    try:
        told = detect_family(path)
    except StillmotionError:
        told = family
    return "" if told == family else f"; its names are those of {told}: write {told}:{path}"


def _any_key_contains(mark: str, names: tuple[str, ...]) -> bool:
    return any(mark in name for name in names)


@functools.lru_cache(maxsize=16)
def _names(path: str, changed: int, size: int) -> tuple[str, ...]:
    """The names in a file, read once while it stays the same."""
    return tuple(read_all_tensors(path, with_values=False))
