"""Models of transformers with random weights, small enough to be saved and loaded in a test."""

from pathlib import Path

import torch
import transformers

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_MLP = {"intermediate_size": 48}
_RETRIEVAL_MODEL = transformers.BlipForImageTextRetrieval
_TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}


def _build_model(kind: str) -> transformers.PreTrainedModel:
    t = transformers
    small = _SMALL | _MLP
    if kind == "videomae":
        return t.VideoMAEModel(t.VideoMAEConfig(image_size=32, patch_size=8, num_frames=8, tubelet_size=2, **small))
    if kind == "vjepa2":
        options = {"crop_size": 32, "patch_size": 8, "frames_per_clip": 8, "mlp_ratio": 2, "pred_num_hidden_layers": 1}
        options |= {"pred_hidden_size": 48, "pred_num_attention_heads": 2}
        return t.VJEPA2Model(t.VJEPA2Config(**_SMALL | {"hidden_size": 48}, **options))
    if kind == "timesformer":
        return t.TimesformerModel(t.TimesformerConfig(image_size=32, patch_size=8, num_frames=8, **small))
    if kind == "dinov2":
        return t.Dinov2Model(t.Dinov2Config(image_size=42, patch_size=14, mlp_ratio=2, **_SMALL))
    if kind == "vit":
        return t.ViTModel(t.ViTConfig(image_size=32, patch_size=8, **small))
    if kind == "vit_mae":
        return t.ViTMAEModel(t.ViTMAEConfig(image_size=32, patch_size=8, **small))
    if kind == "clip":
        vision_options = {"image_size": 32, "patch_size": 8, **small}
        return t.CLIPModel(t.CLIPConfig(vision_config=vision_options, text_config=_TEXT))
    if kind.startswith("blip"):
        blip_config = t.BlipConfig(
            vision_config={"image_size": 32, "patch_size": 8, **small}, text_config=_TEXT | {"vocab_size": 30}
        )
        models = {"blip": t.BlipModel, "blip_caption": t.BlipForConditionalGeneration, "blip_match": _RETRIEVAL_MODEL}
        return models[kind](blip_config) if kind in models else t.BlipVisionModel(blip_config.vision_config)
    if kind == "resnet":
        return t.ResNetModel(t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]))
    if kind == "swin":
        options = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 1]}
        return t.SwinModel(t.SwinConfig(window_size=2, **options))
    return t.BertModel(t.BertConfig(vocab_size=20, **small))


def save_model(kind: str, output_dir: Path) -> Path:
    """Write a model of this type with reproducible weights; returns the folder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _build_model(kind)
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.05 * torch.randn_like(weight)
        model.save_pretrained(output_dir)
    return output_dir
