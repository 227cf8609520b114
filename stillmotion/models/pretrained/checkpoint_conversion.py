"""Convert original checkpoints to transformers models.

Every key of a file must be known: it belongs to the network, which is loaded completely, or is ignored (heads,
decoders, other networks of its training, optimizer state). Any other key, and any missing one, is an error.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.models.input_config import DEFAULT_IMAGE_SIZE
from stillmotion.models.pretrained.adapter_checkpoints import is_adapter_key
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES, CheckpointFamily
from stillmotion.models.pretrained.weight_loading import read_all_tensors, read_tensor_shapes
from stillmotion.utils.formatting import format_names

# Keys under which training programs save weights.
_WRAPPER_KEYS = {"state_dict", "model", "model_state", "model_state_dict", "module", "net", "weights", "backbone"}
# Names of networks that are trained together, of which one is loaded.
_NETWORKS = {
    *("student", "teacher", "base_encoder", "momentum_encoder", "encoder", "target_encoder", "predictor"),
    *("visual", "visual_encoder", "visual_encoder_m"),
}
_TRAINING_STATE_KEYS = r"optimizer|opt|scaler|fp16_scaler|scheduler|lr_scheduler|epoch|args|loss"
_BLOCK = re.compile(
    r"\b(blocks(?:\.\d+)?|resblocks)\.(\d+)\."
)  # DINOv2 groups its blocks into numbered chunks in training
_HEADS_BY_WIDTH = {1280: 16, 1408: 16, 1664: 16}  # attention heads of networks whose heads have more than 64 channels
_HEAD_DIM = 64
_NO_POOL = ("ViTModel", "IJepaModel")  # they would add a pooling layer that is not used
_PERIODS = "rope_embed.periods"  # of rotary positions


def import_transformers() -> Any:
    """Import transformers.

    Raises:
        StillmotionError: If it is not installed.
    """
    try:
        import transformers
    except ImportError:
        raise StillmotionError("transformers is not installed. Run: pip install 'stillmotion[models]'") from None
    return transformers


def build_transformers_model(class_name: str, config_options: Mapping[str, Any]) -> Any:
    """Build a transformers model with random weights.

    Args:
        class_name: Class of the model, such as "Dinov2Model".
        config_options: Fields of its config; those it does not have are ignored.

    Returns:
        The model.
    """
    transformers = import_transformers()
    config_class = getattr(transformers, class_name.removesuffix("Model") + "Config")
    config = config_class(**{field: value for field, value in config_options.items() if hasattr(config_class, field)})
    return getattr(transformers, class_name)(config, **{"add_pooling_layer": False} if class_name in _NO_POOL else {})


def split_family_prefix(spec: str) -> tuple[str, str]:
    """Split a spec such as dino:FILE into family and path; the family is "" if there is none."""
    family, colon, path = spec.partition(":")
    return (family, path) if colon and family in CHECKPOINT_FAMILIES and not Path(spec).exists() else ("", spec)


def detect_family(path: str | Path) -> str:
    """Detect the family of an original checkpoint from its keys.

    Args:
        path: Checkpoint file.

    Returns:
        Name of the family.

    Raises:
        StillmotionError: If the format is unknown or the family is ambiguous.
    """
    names = tuple(read_tensor_shapes(path))
    marked = [
        family
        for family, row in CHECKPOINT_FAMILIES.items()
        if row.marker_keys and all(_any_key_contains(m, names) for m in row.marker_keys)
    ]
    if len(marked) == 1:
        return marked[0]
    candidates = [
        family for family, row in CHECKPOINT_FAMILIES.items() if _any_key_contains(row.patch_embed_key, names)
    ]
    if not candidates:
        raise StillmotionError(
            f"{path}: unknown checkpoint format (first keys: {format_names(names)}). Supported families: "
            f"{', '.join(CHECKPOINT_FAMILIES)}."
        )
    raise StillmotionError(
        f"{path}: the model family is ambiguous. Write it before the path, e.g. {candidates[0]}:{path}. Candidates: "
        f"{', '.join(candidates)}."
    )


def load_original_checkpoint(path: str | Path, family: str) -> nn.Module:
    """Load an original checkpoint as a transformers model, in single precision.

    Args:
        path: Checkpoint file.
        family: Key of `CHECKPOINT_FAMILIES`; it tells which network of the file is loaded.

    Returns:
        The model in evaluation mode.

    Raises:
        StillmotionError: If the file does not hold exactly one network of this family.
    """
    row = CHECKPOINT_FAMILIES[family]
    in_file = {name: value for name, value in read_all_tensors(path).items() if not is_adapter_key(name)}
    tensors = _apply_bias_masks(_select_network(path, family, in_file))
    unknown = [name for name in tensors if name != _PERIODS and _transformers_key(name, row) is None]
    if row.uses_rope != (_PERIODS in tensors):
        unknown += [_PERIODS]
    if unknown:
        is_missing = row.uses_rope and unknown == [_PERIODS]
        problem = "missing key" if is_missing else f"{len(unknown)} unknown keys"
        raise StillmotionError(
            f"{path}: {problem} for a {family} model ({format_names(unknown)}).{_other_family_hint(path, family)}"
        )
    try:
        periods = tensors.pop(_PERIODS, None)
        weights = _convert_keys(tensors, row)
        with torch.random.fork_rng(devices=[]):
            model = build_transformers_model(_model_class(row, weights), _infer_config(weights, row, periods))
        _copy_weights(model, weights, path, family)
        if periods is not None:
            model.rope_embeddings.inv_freq.copy_(1 / periods.float())
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except Exception as error:  # unexpected shapes can fail anywhere
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StillmotionError(
            f"{path} does not match a {family} model ({reason}).{_other_family_hint(path, family)}"
        ) from None
    return model.eval()


def _select_network(path: str | Path, family: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of the family's network in a file, by the authors' names, without ignored ones."""
    row = CHECKPOINT_FAMILIES[family]
    networks: dict[str, dict[str, Tensor]] = defaultdict(dict)
    duplicates = []
    for name, value in tensors.items():
        network, key = _split_key(name)
        duplicates += [name] if key in networks[network] else []
        networks[network][key] = value
    chosen = next((name for name in row.network_prefixes if row.patch_embed_key in networks[name]), None)
    if chosen is None:
        others = [name for name in networks if row.patch_embed_key in networks[name]]
        content = f"the networks {', '.join(others)}" if any(others) else format_names(list(tensors))
        raise StillmotionError(
            f"{path} has no {row.patch_embed_key} of a {family} model; it has {content}."
            f"{_other_family_hint(path, family)}"
        )
    siblings = f"{row.ignored_siblings}|{_TRAINING_STATE_KEYS}"
    unknown = [] if chosen == "" else [name for name in networks[""] if not _first_part_matches(name, siblings)]
    if duplicates or unknown:
        raise StillmotionError(
            f"{path} has unknown keys beside its {family} model ({format_names(duplicates or unknown)})."
            f"{_other_family_hint(path, family)}"
        )
    ignored = row.ignored_keys if chosen else f"{row.ignored_keys}|{siblings}"
    return {
        name: value
        for name, value in networks[chosen].items()
        if _transformers_key(name, row) or not _first_part_matches(name, ignored)
    }


def _split_key(name: str) -> tuple[str, str]:
    """Split a key of a file into the network it belongs to and its name in that network."""
    parts, network = name.split("."), ""
    while len(parts) > 1 and (parts[0] in _WRAPPER_KEYS or (parts[0] in _NETWORKS and not network)):
        network = parts[0] if parts[0] in _NETWORKS else network
        parts = parts[1:]
    return network, ".".join(parts)


def _first_part_matches(name: str, pattern: str) -> bool:
    """Whether the first part of a name matches a pattern."""
    return re.fullmatch(pattern, name.split(".")[0]) is not None


def _transformers_key(name: str, row: CheckpointFamily) -> str | None:
    """Name of a weight in transformers; None if unknown."""
    plain = _BLOCK.sub(lambda m: f"{m[1].partition('.')[0]}.N.", name)
    stem, _, part = plain.rpartition(".")
    other = row.key_map.get(plain) or (f"{row.key_map[stem]}.{part}" if stem in row.key_map else None)
    block = _BLOCK.search(name)
    return other.replace(".N.", f".{block[2]}.") if other and block else other


def _apply_bias_masks(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Apply DINOv3's masks, which are 0 where there is no bias."""
    masks = {name: mask for name, mask in tensors.items() if name.endswith(".bias_mask") and name[:-5] in tensors}
    masked = {name: value for name, value in tensors.items() if name not in masks}
    for name, mask in masks.items():
        bias = masked[name.removesuffix("_mask")]
        if mask.shape == bias.shape:
            masked[name.removesuffix("_mask")] = torch.where(mask == 0, torch.zeros_like(bias), bias)
        else:
            masked[name] = mask  # it is then reported as unknown
    return masked


def _convert_keys(tensors: Mapping[str, Tensor], row: CheckpointFamily) -> dict[str, Tensor]:
    """Rename weights, all of which are known, as transformers does."""
    weights: dict[str, Tensor] = {}
    for name, value in tensors.items():
        key = _transformers_key(name, row) or name
        if "{qkv}" in key:
            weights |= {key.replace("{qkv}", letter): v for letter, v in zip("qkv", value.chunk(3), strict=True)}
        else:
            weights[key] = value
    return weights


def _model_class(row: CheckpointFamily, weights: Mapping[str, Tensor]) -> str:
    has_registers = row.model_class == "Dinov2Model" and "embeddings.register_tokens" in weights
    return "Dinov2WithRegistersModel" if has_registers else row.model_class


def _infer_config(weights: dict[str, Tensor], row: CheckpointFamily, periods: Tensor | None) -> dict[str, Any]:
    """Infer the config from the shapes of the weights; delete all-zero key biases of DINOv3."""
    width, _, patch, _ = next(value for value in weights.values() if value.ndim == 4).shape
    hidden = next(len(v) for name, v in weights.items() if name.endswith(("mlp.fc1.weight", "mlp.up_proj.weight")))
    positions = next((v.shape[-2] for name, v in weights.items() if "position_embedding" in name), None)
    cells = (DEFAULT_IMAGE_SIZE // patch) ** 2 if positions is None else positions - (row.model_class != "IJepaModel")
    key_biases = [name for name in weights if name.endswith("k_proj.bias")]
    has_key_bias = any(bool(weights[name].any()) for name in key_biases)
    registers = weights.get("embeddings.register_tokens")
    num_layers = 1 + max(int(number) for name in weights for number in re.findall(r"\.(\d+)\.", name))
    if num_layers > len(weights):
        raise ValueError(f"it numbers {num_layers} layers but has only {len(weights)} tensors")
    if row.uses_rope and not has_key_bias:
        for name in key_biases:
            del weights[name]
    heads = row.num_heads or _HEADS_BY_WIDTH.get(width) or max(1, width // _HEAD_DIM)
    if row.uses_rope or row.model_class == "Dinov2Model":
        heads = max(1, width // (_HEAD_DIM if periods is None else 4 * len(periods)))
    return {
        "hidden_size": width,
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "intermediate_size": hidden,
        "mlp_ratio": hidden // width,
        "patch_size": patch,
        "image_size": patch * round(cells**0.5),
        "qkv_bias": any(name.endswith("q_proj.bias") for name in weights),
        "key_bias": has_key_bias,
        "num_register_tokens": 0 if registers is None else registers.shape[1],
        **row.config_options,
    }


def _copy_weights(model: nn.Module, weights: Mapping[str, Tensor], path: str | Path, family: str) -> None:
    """Copy converted weights into a model; raise unless names and shapes match (but for axes of length 1)."""
    parameters = model.state_dict()
    # No token is masked, so mask_token is not needed.
    missing = [name for name in parameters if name not in weights and not name.endswith("mask_token")]
    unexpected = [name for name in weights if name not in parameters]
    mismatched = [
        f"{name} (file {tuple(weights[name].shape)}, network {tuple(parameters[name].shape)})"
        for name in weights.keys() & parameters.keys()
        if [n for n in weights[name].shape if n > 1] != [n for n in parameters[name].shape if n > 1]
    ]
    problems = {"Missing": missing, "Unexpected": unexpected, "Shape mismatch": sorted(mismatched)}
    if any(problems.values()):
        report = " ".join(f"{problem}: {format_names(names)}." for problem, names in problems.items() if names)
        raise StillmotionError(f"{path} does not match a {family} model. {report}{_other_family_hint(path, family)}")
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(value.reshape(parameters[name].shape))


def _other_family_hint(path: str | Path, family: str) -> str:
    """Sentence for the end of an error if the keys of a file are those of another family."""
    try:
        detected = detect_family(path)
    except StillmotionError:
        detected = family
    return "" if detected == family else f" Its keys are those of a {detected} model: write {detected}:{path}."


def _any_key_contains(marker: str, names: tuple[str, ...]) -> bool:
    return any(marker in name for name in names)
