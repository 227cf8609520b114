"""Table: how the authors of MAE, DINO, CLIP and others name the weights in their checkpoints.

The keys are converted to those of transformers by a table in which N stands for the index of a block; a key with {qkv}
is split into three. Of a file with several networks, each family loads the one that its authors recommend.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stillmotion.models.input_config import CLIP_NORMALIZATION, IMAGENET_NORMALIZATION, Normalization


@dataclass(frozen=True)
class CheckpointFamily:
    """How an original checkpoint of a family is read.

    Args:
        model_class: Class in transformers.
        key_map: Names in transformers by the authors' names, with or without .weight and .bias.
        network_prefixes: Which network of a file is loaded: the first of these that it has; "" is one without a prefix.
        ignored_keys: Pattern of the network's own keys that are ignored.
        ignored_siblings: Pattern of keys beside the network that are ignored.
        marker_keys: A file in which each of these occurs in a key is of this family; if empty, it is never detected.
        config_options: Fields of the config that cannot be inferred from the weights.
        num_heads: Attention heads; 0 infers them from the width.
        normalization: Normalization of the frames.
    """

    model_class: str
    key_map: Mapping[str, str]
    network_prefixes: tuple[str, ...] = ("",)
    ignored_keys: str = "head|heads|fc"
    ignored_siblings: str = ""
    marker_keys: tuple[str, ...] = ()
    config_options: Mapping[str, Any] = field(default_factory=lambda: {"layer_norm_eps": 1e-6})
    num_heads: int = 0
    normalization: Normalization = IMAGENET_NORMALIZATION

    @property
    def uses_rope(self) -> bool:
        """Whether positions are rotary, not a table."""
        return self.model_class == "DINOv3ViTModel"

    @property
    def patch_embed_key(self) -> str:
        """Key of the patch embedding, which every network has."""
        return "conv1.weight" if "conv1" in self.key_map else "patch_embed.proj.weight"


_VIT = {
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
    "blocks.N.norm1": "layers.N.layernorm_before",
    "blocks.N.attn.qkv": "layers.N.attention.{qkv}_proj",
    "blocks.N.attn.proj": "layers.N.attention.o_proj",
    "blocks.N.norm2": "layers.N.layernorm_after",
    "blocks.N.mlp.fc1": "layers.N.mlp.fc1",
    "blocks.N.mlp.fc2": "layers.N.mlp.fc2",
    "norm": "layernorm",
}
_DINOV2 = {
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "mask_token": "embeddings.mask_token",
    "register_tokens": "embeddings.register_tokens",
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
    "blocks.N.norm1": "encoder.layer.N.norm1",
    "blocks.N.attn.qkv": "encoder.layer.N.attention.{qkv}_proj",
    "blocks.N.attn.proj": "encoder.layer.N.attention.o_proj",
    "blocks.N.ls1.gamma": "encoder.layer.N.layer_scale1.lambda1",
    "blocks.N.norm2": "encoder.layer.N.norm2",
    "blocks.N.mlp.fc1": "encoder.layer.N.mlp.fc1",
    "blocks.N.mlp.fc2": "encoder.layer.N.mlp.fc2",
    "blocks.N.ls2.gamma": "encoder.layer.N.layer_scale2.lambda1",
    "norm": "layernorm",
}
_DINOV3 = {
    "cls_token": "embeddings.cls_token",
    "mask_token": "embeddings.mask_token",
    "storage_tokens": "embeddings.register_tokens",
    "patch_embed.proj": "embeddings.patch_embeddings",
    "blocks.N.norm1": "model.layer.N.norm1",
    "blocks.N.attn.qkv": "model.layer.N.attention.{qkv}_proj",
    "blocks.N.attn.proj": "model.layer.N.attention.o_proj",
    "blocks.N.ls1.gamma": "model.layer.N.layer_scale1.lambda1",
    "blocks.N.norm2": "model.layer.N.norm2",
    "blocks.N.mlp.fc1": "model.layer.N.mlp.up_proj",
    "blocks.N.mlp.fc2": "model.layer.N.mlp.down_proj",
    "blocks.N.ls2.gamma": "model.layer.N.layer_scale2.lambda1",
    "norm": "norm",
}
_BLIP = {
    "cls_token": "embeddings.class_embedding",
    "pos_embed": "embeddings.position_embedding",
    "patch_embed.proj": "embeddings.patch_embedding",
    "blocks.N.norm1": "encoder.layers.N.layer_norm1",
    "blocks.N.attn.qkv": "encoder.layers.N.self_attn.qkv",
    "blocks.N.attn.proj": "encoder.layers.N.self_attn.projection",
    "blocks.N.norm2": "encoder.layers.N.layer_norm2",
    "blocks.N.mlp.fc1": "encoder.layers.N.mlp.fc1",
    "blocks.N.mlp.fc2": "encoder.layers.N.mlp.fc2",
    "norm": "post_layernorm",
}
_CLIP = {
    "class_embedding": "embeddings.class_embedding",
    "positional_embedding": "embeddings.position_embedding.weight",
    "conv1": "embeddings.patch_embedding",
    "ln_pre": "pre_layrnorm",
    "transformer.resblocks.N.ln_1": "encoder.layers.N.layer_norm1",
    "transformer.resblocks.N.attn.in_proj_weight": "encoder.layers.N.self_attn.{qkv}_proj.weight",
    "transformer.resblocks.N.attn.in_proj_bias": "encoder.layers.N.self_attn.{qkv}_proj.bias",
    "transformer.resblocks.N.attn.out_proj": "encoder.layers.N.self_attn.out_proj",
    "transformer.resblocks.N.ln_2": "encoder.layers.N.layer_norm2",
    "transformer.resblocks.N.mlp.c_fc": "encoder.layers.N.mlp.fc1",
    "transformer.resblocks.N.mlp.c_proj": "encoder.layers.N.mlp.fc2",
    "ln_post": "post_layernorm",
}
_TEXT = r"transformer|text|token_embedding|positional_embedding|attn_mask|ln_final|text_projection|logit_\w+"
_IJEPA = CheckpointFamily(
    "IJepaModel", _VIT, network_prefixes=("target_encoder", "encoder", ""), marker_keys=("target_encoder.",)
)
_MOCO = CheckpointFamily(
    "ViTModel", _VIT, network_prefixes=("momentum_encoder", ""), marker_keys=("base_encoder.",), num_heads=12
)  # S and B alike
_OPENAI = CheckpointFamily(
    "CLIPVisionModel",
    _CLIP,
    network_prefixes=("visual", ""),
    ignored_keys="proj",
    ignored_siblings=f"{_TEXT}|input_resolution|context_length|vocab_size",
    marker_keys=("visual.", "input_resolution"),
    config_options={"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    normalization=CLIP_NORMALIZATION,
)
CHECKPOINT_FAMILIES: Mapping[str, CheckpointFamily] = {
    "mae": CheckpointFamily(
        "ViTMAEModel",
        _VIT,
        ignored_keys=r"head|mask_token|decoder_\w+",
        marker_keys=("decoder_embed.",),
        config_options={"layer_norm_eps": 1e-6, "mask_ratio": 0.0},
    ),
    "ijepa": _IJEPA,
    "ijepa-encoder": replace(_IJEPA, network_prefixes=("encoder",), marker_keys=()),
    "clip": _OPENAI,
    "openclip": replace(_OPENAI, marker_keys=(), config_options={"hidden_act": "gelu", "layer_norm_eps": 1e-5}),
    "blip": CheckpointFamily(
        "BlipVisionModel",
        _BLIP,
        network_prefixes=("visual_encoder", ""),
        ignored_siblings=r"(text|vision|image)_\w+|itm_head|cls_head|temp|queue_ptr|ptr_queue|idx_queue",
        marker_keys=("visual_encoder.",),
        normalization=CLIP_NORMALIZATION,
    ),
    "mocov3": _MOCO,
    "mocov3-base": replace(_MOCO, network_prefixes=("base_encoder",), marker_keys=()),
    "dino": CheckpointFamily(
        "ViTModel", _VIT, network_prefixes=("teacher", ""), ignored_siblings="dino_loss", marker_keys=("dino_loss.",)
    ),
    "ibot": CheckpointFamily(
        "ViTModel",
        _VIT,
        network_prefixes=("teacher", ""),
        ignored_keys="head|heads|fc|masked_embed",
        ignored_siblings="ibot_loss",
        marker_keys=("ibot_loss.",),
    ),
    "dinov2": CheckpointFamily(
        "Dinov2Model",
        _DINOV2,
        network_prefixes=("teacher", ""),
        ignored_keys="head|dino_head|ibot_head|linear_head",
        ignored_siblings=r"dino_loss|ibot_patch_loss",
        marker_keys=("pos_embed", ".ls1.gamma"),
    ),
    "dinov3": CheckpointFamily(
        "DINOv3ViTModel",
        _DINOV3,
        network_prefixes=("teacher", ""),
        ignored_keys="head|dino_head|ibot_head",
        ignored_siblings=r"dino_loss|ibot_patch_loss",
        marker_keys=("rope_embed.periods",),
        config_options={"layer_norm_eps": 1e-5},
    ),
}
