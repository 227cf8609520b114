"""The families of image transformers, and by what names their authors' checkpoints call their weights.

A name is turned into that of transformers by a table in which N stands for a block's number; a name with {qkv} is three
there. Of a file that holds several networks, each family says which is taken, as its authors do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stillmotion.nn.intake import CLIP, IMAGENET, Normalisation


@dataclass(frozen=True)
class Family:
    """How an original checkpoint is read.

    model: the class of transformers. names: theirs by the authors', or of what stands before .weight and .bias.
    networks: which network of a file is taken, the first that is there; "" is one without a name of its own.
    left: of the network's own names, those that are left behind. beside: of the names beside it. Both are patterns.
    marks: a file all of whose marks stand in some name is of this family; without any, it must be said.
    options: of the configuration, where the weights do not tell them.
    heads: of attention; 0 goes by the width.
    """

    model: str
    names: Mapping[str, str]
    networks: tuple[str, ...] = ("",)
    left: str = "head|heads|fc"
    beside: str = ""
    marks: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=lambda: {"layer_norm_eps": 1e-6})
    heads: int = 0
    normalisation: Normalisation = IMAGENET

    @property
    def rotary(self) -> bool:
        """Whether positions are turns of queries and keys, in place of a table."""
        return self.model == "DINOv3ViTModel"

    @property
    def first(self) -> str:
        """The name of the weights that see patches, which every network has."""
        return "conv1.weight" if "conv1" in self.names else "patch_embed.proj.weight"


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
_MOCO = Family("ViTModel", _VIT, networks=("momentum_encoder", ""), marks=("base_encoder.",), heads=12)  # S and B alike
_OPENAI = Family(
    "CLIPVisionModel",
    _CLIP,
    networks=("visual", ""),
    left="proj",
    beside=f"{_TEXT}|input_resolution|context_length|vocab_size",
    marks=("visual.", "input_resolution"),
    options={"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    normalisation=CLIP,
)
FAMILIES: Mapping[str, Family] = {
    "mae": Family(
        "ViTMAEModel",
        _VIT,
        left=r"head|mask_token|decoder_\w+",
        marks=("decoder_embed.",),
        options={"layer_norm_eps": 1e-6, "mask_ratio": 0.0},
    ),
    "ijepa": Family("IJepaModel", _VIT, networks=("target_encoder", "encoder", ""), marks=("target_encoder.",)),
    "clip": _OPENAI,
    "openclip": replace(_OPENAI, marks=(), options={"hidden_act": "gelu", "layer_norm_eps": 1e-5}),
    "blip": Family(
        "BlipVisionModel",
        _BLIP,
        networks=("visual_encoder",),
        beside=r"(text|vision|image)_\w+|itm_head|cls_head|temp|queue_ptr|ptr_queue|idx_queue",
        marks=("visual_encoder.",),
        normalisation=CLIP,
    ),
    "mocov3": _MOCO,
    "mocov3-base": replace(_MOCO, networks=("base_encoder",), marks=()),
    "dino": Family("ViTModel", _VIT, networks=("teacher", ""), beside="dino_loss", marks=("dino_loss.",)),
    "ibot": Family(
        "ViTModel",
        _VIT,
        networks=("teacher", ""),
        left="head|heads|fc|masked_embed",
        beside="ibot_loss",
        marks=("ibot_loss.",),
    ),
    "dinov2": Family(
        "Dinov2Model",
        _DINOV2,
        networks=("teacher", ""),
        left="head|dino_head|ibot_head|linear_head",
        beside=r"dino_loss|ibot_patch_loss",
        marks=("pos_embed", ".ls1.gamma"),
    ),
    "dinov3": Family(
        "DINOv3ViTModel",
        _DINOV3,
        networks=("teacher", ""),
        left="head|dino_head|ibot_head",
        beside=r"dino_loss|ibot_patch_loss",
        marks=("rope_embed.periods",),
        options={"layer_norm_eps": 1e-5},
    ),
}
