"""Fine-tuning recipes of the papers, and `laptop` for small data sets.

`slowfast` and `slowfast-syncbn` are how SlowFast's contrastive models (BOD-VCL's Table 3) are fine-tuned on UCF101 and
HMDB51: those of MoCo, without synchronized batch norm, and those of SimCLR, BYOL and SwAV, with it. `bod-vcl-112` and
`bod-vcl-vit` are the table's other networks, tested on three clips as the paper does.
`vididi` is ViDiDi's Table 4, `severe` and `severe-ssv2` are the SEVERE benchmark (BOD-VCL's Table 4). On
Something-Something, `ssv2-image-model` is for image models and transfer runs (Table 5 of the image-to-video paper),
and `ssv2-slowfast` is SlowFast's schedule. docs/guides/finetune.md lists what each paper leaves open.
"""

from dataclasses import replace

from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.training.config import TrainConfig
from stillmotion.training.finetune.config import (
    ClassifierConfig,
    FinetuneAugmentConfig,
    FinetuneConfig,
    FinetuneDataConfig,
)
from stillmotion.training.recipe_table import (
    ADAMW_DEFAULTS,
    ADAMW_SMALL_MODEL,
    SGD_DEFAULTS,
    Recipe,
    RecipeTable,
    cite_tables,
)

# SlowFast cuts 224 pixels of a shorter edge of 256 to 320: so much of a frame of 4:3.
_SLOWFAST_CROP_SCALE = (0.37, 0.57)


def _slowfast_config() -> FinetuneConfig:
    """200 epochs of SGD under a cosine; tested on 10 clips × 3 crops at 256."""
    colour = (0.4, 0.4, 0.4, 0.1)
    return FinetuneConfig(
        data=FinetuneDataConfig(
            path="ucf101",
            num_frames=8,
            frame_stride=8,
            fps=30,
            image_size=224,
            augment=FinetuneAugmentConfig(crop_scale=_SLOWFAST_CROP_SCALE, color_jitter=colour, grayscale_prob=0.2),
            num_test_crops=3,
            test_full_frame=True,
        ),
        optim=replace(SGD_DEFAULTS, lr=0.005, epochs=200),
    )


def _slowfast_syncbn_config() -> FinetuneConfig:
    """The same at twice the rate, without weight decay, and with dropout 0.8."""
    config = _slowfast_config()
    return replace(
        config, head=replace(config.head, dropout=0.8), optim=replace(config.optim, lr=0.01, weight_decay=0.0)
    )


def _bod_vcl_112_config() -> FinetuneConfig:
    """The schedule after synchronized batch norm, on 16 frames of 112 pixels; tested on 3 clips."""
    config = _slowfast_syncbn_config()
    data = replace(
        config.data,
        num_frames=16,
        frame_stride=4,
        image_size=112,
        num_test_clips=3,
        num_test_crops=1,
        test_full_frame=False,
    )
    return replace(config, data=data)


def _bod_vcl_vit_config() -> FinetuneConfig:
    """VideoMAE's 100 epochs of AdamW on UCF101, two clips of each video in a batch; tested on 3 clips."""
    return FinetuneConfig(
        data=FinetuneDataConfig(
            path="ucf101",
            num_frames=16,
            frame_stride=4,
            fps=30,
            image_size=224,
            clips_per_video=2,
            augment=FinetuneAugmentConfig(crop_scale=(0.08, 1.0)),
            num_test_clips=3,
        ),
        head=ClassifierConfig(dropout=0.5, label_smoothing=0.1, mixup_alpha=0.8),
        optim=replace(
            ADAMW_DEFAULTS,
            lr=2.5e-4,  # 5e-4 for 256 videos, which are 512 clips
            lr_batch_size=256,
            batch_size=256,
            epochs=100,
            warmup_epochs=5,
            warmup_start_lr=1e-8,
            cosine_start="after-warmup",
            layer_decay=0.7,
        ),
    )


def _vididi_config() -> FinetuneConfig:
    """100 epochs of SGD, the rate ÷ 10 at 60 and 80; tested on 10 clips of 16."""
    return FinetuneConfig(
        data=FinetuneDataConfig(path="ucf101", num_frames=16, frame_stride=3, fps=0.0, image_size=112),
        optim=replace(SGD_DEFAULTS, lr=0.2, lr_batch_size=0, batch_size=128, epochs=100, milestones=(60, 80)),
    )


def _severe_config() -> FinetuneConfig:
    """16 epochs of Adam, the rate × 0.3 at 6, 10 and 14; 10 clips of two seconds in each, tested on 10 of them."""
    crop = FinetuneAugmentConfig(crop_scale=(0.08, 1.0), color_jitter=(0.4, 0.4, 0.4, 0.2), color_jitter_prob=1.0)
    return FinetuneConfig(
        data=FinetuneDataConfig(
            path="gym99", num_frames=32, frame_stride=1, fps=16, image_size=112, clips_per_video=10, augment=crop
        ),
        head=ClassifierConfig(dropout=0.0),
        # AdamW without weight decay is Adam.
        optim=replace(
            ADAMW_DEFAULTS,
            lr=1e-4,
            weight_decay=0.0,
            batch_size=32,
            epochs=16,
            warmup_epochs=0.0,
            milestones=(6, 10, 14),
            gamma=0.3,
        ),
    )


def _severe_ssv2_config() -> FinetuneConfig:
    """22 epochs of Adam, the rate × 0.3 at 12, 17 and 20; 2 clips in each."""
    config = _severe_config()
    return replace(
        config,
        data=replace(config.data, path="ssv2", clips_per_video=2),
        optim=replace(config.optim, epochs=22, milestones=(12, 17, 20)),
    )


def _ssv2_slowfast_config() -> FinetuneConfig:
    """22 epochs of SGD, the rate ÷ 10 at 14 and 18; never mirrored, tested on one view."""
    return FinetuneConfig(
        data=FinetuneDataConfig(
            path="ssv2",
            augment=FinetuneAugmentConfig(crop_scale=_SLOWFAST_CROP_SCALE, flip_prob=0.0),
            num_frames=8,
            frame_stride=5,
            fps=0.0,
            image_size=224,
            num_test_clips=1,
            test_full_frame=True,
        ),
        optim=replace(
            SGD_DEFAULTS,
            lr=0.12,
            weight_decay=1e-6,
            epochs=22,
            warmup_epochs=0.19,
            warmup_start_lr=1e-4,
            milestones=(14, 18),
        ),
    )


def _ssv2_image_model_config() -> FinetuneConfig:
    """25 epochs of AdamW for an image model, frozen or transferred, under a head that sees the order of frames."""
    return FinetuneConfig(
        data=FinetuneDataConfig(
            path="ssv2",
            augment=FinetuneAugmentConfig(crop_scale=(0.4, 1.0), flip_prob=0.0),
            num_frames=8,
            frame_stride=5,
            fps=0.0,
            image_size=224,
            num_test_clips=1,
        ),
        head=ClassifierConfig(pool="concat"),
        optim=replace(
            ADAMW_DEFAULTS,
            lr=1e-3,
            lr_batch_size=256,
            batch_size=64,
            epochs=25,
            warmup_epochs=2.5,
            layer_decay=0.75,
            max_grad_norm=1.0,
        ),
    )


def _laptop_config() -> FinetuneConfig:
    """This library's own settings for a small set and two cores: clips as the encoder takes them."""
    return FinetuneConfig(
        data=FinetuneDataConfig(num_test_clips=4),
        optim=replace(ADAMW_SMALL_MODEL, lr=5e-4, epochs=20),
        train=TrainConfig(checkpoint_every_steps=50),
    )


def make_debug_config(config: FinetuneConfig) -> FinetuneConfig:
    """Return a run that learns the trajectory of synthetic videos from few labels, with the demo's network."""
    return replace(
        config,
        encoder="demo-simclr",
        data=FinetuneDataConfig(
            path="synthetic",
            target="trajectory",
            videos_per_class=16,
            augment=FinetuneAugmentConfig(crop_scale=(0.9, 1.0), flip_prob=0.0),
            num_test_clips=2,
            num_workers=0,
            synthetic=SyntheticConfig(num_videos=256),
        ),
        head=replace(config.head, dropout=0.1),
        optim=replace(ADAMW_SMALL_MODEL, lr=1e-2, epochs=10, layer_decay=0.5),
        train=TrainConfig(checkpoint_every_steps=20, log_every_steps=4),
    )


FINETUNE_RECIPES: RecipeTable[FinetuneConfig] = RecipeTable(
    "finetune",
    {
        "laptop": Recipe(_laptop_config, "a small labelled set of your own, two cores"),
        "slowfast": Recipe(
            _slowfast_config, "UCF101 or HMDB51 by SlowFast's protocol: 200 epochs of SGD", cite_tables("BOD-VCL", 3)
        ),
        "slowfast-syncbn": Recipe(
            _slowfast_syncbn_config, "the same after synchronised batch norm", cite_tables("BOD-VCL", 3)
        ),
        "bod-vcl-112": Recipe(
            _bod_vcl_112_config,
            "UCF101 or HMDB51 with S3D-G, R3D-18 or R(2+1)D-18: 16 frames, 112 px, 3 test clips",
            cite_tables("BOD-VCL", 3),
        ),
        "bod-vcl-vit": Recipe(
            _bod_vcl_vit_config,
            "UCF101 or HMDB51 for the video ViT: VideoMAE's 100 epochs of AdamW, 3 test clips",
            cite_tables("BOD-VCL", 3),
        ),
        "vididi": Recipe(
            _vididi_config, "UCF101 or HMDB51 by ViDiDi's protocol: 100 epochs of SGD", cite_tables("ViDiDi", 4)
        ),
        "severe": Recipe(
            _severe_config, "FineGym by the SEVERE benchmark: 16 epochs of Adam", cite_tables("BOD-VCL", 4)
        ),
        "severe-ssv2": Recipe(
            _severe_ssv2_config,
            "Something-Something v2 by the SEVERE benchmark: 22 epochs of Adam",
            cite_tables("BOD-VCL", 4),
        ),
        "ssv2-slowfast": Recipe(
            _ssv2_slowfast_config, "Something-Something v2 by SlowFast's schedule: 22 epochs of SGD"
        ),
        "ssv2-image-model": Recipe(
            _ssv2_image_model_config,
            "Something-Something v2 for image models: 25 epochs of AdamW",
            cite_tables("image-to-video transfer", 5),
        ),
    },
    make_debug_config,
)
