"""The depth of weights, and which of them are trained."""

import pytest
import torch
from support.tiny_transformers import save_model

from stillmotion.errors import StillmotionError
from stillmotion.methods.image_to_video import ProjectionConfig, TokenProjection
from stillmotion.models.backbones import create_backbone
from stillmotion.models.freeze import layer_depths, unfreeze
from stillmotion.models.heads import VideoClassifier
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES
from stillmotion.models.pretrained.frozen_image_model import (
    ImageModelConfig,
    random_image_model,
)
from stillmotion.models.pretrained.transformers_backbone import load_transformers_backbone


def transfer_model(family="dinov2"):
    images = random_image_model(ImageModelConfig(family=family, arch="tiny"))
    return images.with_projection(TokenProjection(images.out_features, ProjectionConfig()))


def trainable_names(backbone):
    return {name for name, weight in backbone.named_parameters() if weight.requires_grad}


def test_embeddings_lie_deepest_and_the_last_norm_and_projection_behind_all_blocks():
    result = layer_depths(transfer_model())
    assert {result[n] for n in result if ".embeddings." in n} == {3}
    assert {result[n] for n in result if ".layer.0." in n} == {2}
    assert {result[n] for n in result if ".layer.1." in n} == {1}
    assert {result[n] for n in result if n.startswith(("images.model.layernorm", "projection."))} == {0}


@pytest.mark.parametrize("family", CHECKPOINT_FAMILIES)
def test_every_family_has_its_embeddings_before_two_blocks_and_its_last_norm_behind(family):
    result = layer_depths(transfer_model(family))
    assert set(result.values()) == {0, 1, 2, 3}
    assert result[next(iter(result))] == 3


@pytest.mark.parametrize("kind", ["dinov2", "vit_mae", "clip", "swin", "resnet", "videomae"])
def test_so_many_blocks_of_a_model_from_elsewhere_are_trained(kind, tmp_path):
    backbone, _ = load_transformers_backbone(save_model(kind, tmp_path))
    deep = layer_depths(backbone)
    for num_blocks in (0, 1, 2):
        unfreeze(backbone, num_blocks)
        assert trainable_names(backbone) == {name for name in deep if deep[name] <= num_blocks}
    unfreeze(backbone, "none")
    assert not trainable_names(backbone)
    unfreeze(backbone, "all")
    assert set(deep) - trainable_names(backbone) == (
        {"model.embeddings.position_embeddings"} if kind == "vit_mae" else set()
    )
    with pytest.raises(StillmotionError, match=r"head\.unfreeze is 3; this network has 2 blocks"):
        unfreeze(backbone, 3)


def test_frozen_and_transferred_train_the_same_weights_of_one_model(tmp_path):
    backbone, _ = load_transformers_backbone(save_model("dinov2", tmp_path))
    run = random_image_model(ImageModelConfig(family="dinov2", arch="tiny"))
    for num_blocks in ("none", 0, 1, 2, "all"):
        unfreeze(backbone, num_blocks)
        unfreeze(run, num_blocks)
        assert trainable_names(backbone) == {name.removeprefix("images.") for name in trainable_names(run)}


def test_stages_that_rest_keep_their_batch_norms_statistics():
    model = VideoClassifier(create_backbone("small_cnn3d", channels=(4, 8, 8)), 3)
    unfreeze(model.backbone, 1)
    model.train()
    before = {name: value.clone() for name, value in model.backbone.named_buffers()}
    model(torch.randn(4, 3, 4, 16, 16))
    changed_names = {name for name, value in model.backbone.named_buffers() if not torch.equal(value, before[name])}
    assert changed_names
    assert all(name.startswith("layers.2.") for name in changed_names)
