"""The papers' fine-tuning protocols by name, one for small sets and one that shows that it runs.

`slowfast` and `slowfast-sync` are how SlowFast's contrastive models (BOD-VCL's Table 3) are tuned on UCF101 and HMDB51:
those of MoCo, whose batch norm is each device's own, and those of SimCLR, BYOL and SwAV, with a synchronised one.
`vididi` is ViDiDi's Table 4, `severe` and `severe-ssv2` are the SEVERE benchmark (BOD-VCL's Table 4). Also on
Something-Something, `ssv2` is for image models and what was transferred from them (Table 5 of that paper), and
`ssv2-light` is SlowFast's schedule.
`laptop` is for a small set of your own; `debug` learns the trajectory of synthetic videos. docs/finetune.md says what
each paper leaves open.
"""

from dataclasses import replace

from stillmotion.config import TrainConfig
from stillmotion.config.finetune import CropConfig, FinetuneConfig, HeadConfig, LabelledConfig
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.recipes.rates import ADAMW, SGD, SMALL_ADAMW
from stillmotion.recipes.table import Recipe, Recipes, cited

# SlowFast cuts 224 pixels of a shorter edge of 256 to 320: so much of a frame of 4:3.
_JITTERED = (0.37, 0.57)


def slowfast() -> FinetuneConfig:
    """200 epochs of SGD under a cosine; tested on 10 clips × 3 crops at 256."""
    colour = (0.4, 0.4, 0.4, 0.1)
    return FinetuneConfig(
        data=LabelledConfig(
            path="ucf101",
            frames=8,
            stride=8,
            fps=30,
            size=224,
            augment=CropConfig(area=_JITTERED, colour=colour, grey=0.2),
            test_crops=3,
            test_full=True,
        ),
        optim=replace(SGD, lr=0.005, epochs=200),
    )


def slowfast_sync() -> FinetuneConfig:
    """The same at twice the rate, without weight decay, and with dropout 0.8."""
    config = slowfast()
    return replace(
        config, head=replace(config.head, dropout=0.8), optim=replace(config.optim, lr=0.01, weight_decay=0.0)
    )


def vididi() -> FinetuneConfig:
    """100 epochs of SGD, the rate ÷ 10 at 60 and 80; tested on 10 clips of 16."""
    return FinetuneConfig(
        data=LabelledConfig(path="ucf101", frames=16, stride=3, fps=0.0, size=112),
        optim=replace(SGD, lr=0.2, lr_batch=0, batch=128, epochs=100, milestones=(60, 80)),
    )


def severe() -> FinetuneConfig:
    """16 epochs of Adam, the rate × 0.3 at 6, 10 and 14; 10 clips of two seconds in each, tested on 10 of them."""
    crop = CropConfig(area=(0.08, 1.0), colour=(0.4, 0.4, 0.4, 0.2), colour_p=1.0)
    return FinetuneConfig(
        data=LabelledConfig(path="gym99", frames=32, stride=1, fps=16, size=112, clips=10, augment=crop),
        head=HeadConfig(dropout=0.0),
        # AdamW without weight decay is Adam.
        optim=replace(
            ADAMW, lr=1e-4, weight_decay=0.0, batch=32, epochs=16, warmup_epochs=0.0, milestones=(6, 10, 14), gamma=0.3
        ),
    )


def severe_ssv2() -> FinetuneConfig:
    """22 epochs of Adam, the rate × 0.3 at 12, 17 and 20; 2 clips in each."""
    config = severe()
    return replace(
        config,
        data=replace(config.data, path="ssv2", clips=2),
        optim=replace(config.optim, epochs=22, milestones=(12, 17, 20)),
    )


def ssv2_light() -> FinetuneConfig:
    """22 epochs of SGD, the rate ÷ 10 at 14 and 18; never mirrored, tested on one view."""
    return FinetuneConfig(
        data=LabelledConfig(
            path="ssv2",
            augment=CropConfig(area=_JITTERED, flip=0.0),
            frames=8,
            stride=5,
            fps=0.0,
            size=224,
            test_clips=1,
            test_full=True,
        ),
        optim=replace(
            SGD, lr=0.12, weight_decay=1e-6, epochs=22, warmup_epochs=0.19, warmup_lr=1e-4, milestones=(14, 18)
        ),
    )


def ssv2() -> FinetuneConfig:
    """25 epochs of AdamW for an image model, frozen or transferred, under a head that sees the order of frames."""
    return FinetuneConfig(
        data=LabelledConfig(
            path="ssv2",
            augment=CropConfig(area=(0.4, 1.0), flip=0.0),
            frames=8,
            stride=5,
            fps=0.0,
            size=224,
            test_clips=1,
        ),
        head=HeadConfig(pool="order"),
        optim=replace(ADAMW, lr=1e-3, lr_batch=256, batch=64, epochs=25, warmup_epochs=2.5, layer_decay=0.75, clip=1.0),
    )


def laptop() -> FinetuneConfig:
    """This library's own settings for a small set and two cores: clips as the encoder takes them."""
    return FinetuneConfig(
        data=LabelledConfig(test_clips=4),
        optim=replace(SMALL_ADAMW, lr=5e-4, epochs=20),
        train=TrainConfig(checkpoint_every=50),
    )


def debug() -> FinetuneConfig:
    """The trajectory of synthetic videos from few labels, from a run of the demo or from its network untrained."""
    return FinetuneConfig(
        encoder="demo-simclr",
        data=LabelledConfig(
            path="synthetic",
            target="trajectory",
            per_class=16,
            augment=CropConfig(area=(0.9, 1.0), flip=0.0),
            test_clips=2,
            workers=0,
            synthetic=SyntheticConfig(videos=256),
        ),
        head=HeadConfig(dropout=0.1),
        optim=replace(SMALL_ADAMW, lr=1e-2, epochs=10, layer_decay=0.5),
        train=TrainConfig(checkpoint_every=20, log_every=4),
    )


FINETUNE: Recipes[FinetuneConfig] = Recipes(
    "finetune",
    {
        "laptop": Recipe(laptop, "a small labelled set of your own, two cores"),
        "slowfast": Recipe(slowfast, "UCF101 or HMDB51 by SlowFast's protocol: 200 epochs of SGD", cited("BOD-VCL", 3)),
        "slowfast-sync": Recipe(slowfast_sync, "the same after synchronised batch norm", cited("BOD-VCL", 3)),
        "vididi": Recipe(vididi, "UCF101 or HMDB51 by ViDiDi's protocol: 100 epochs of SGD", cited("ViDiDi", 4)),
        "severe": Recipe(severe, "FineGym by the SEVERE benchmark: 16 epochs of Adam", cited("BOD-VCL", 4)),
        "severe-ssv2": Recipe(
            severe_ssv2, "Something-Something v2 by the SEVERE benchmark: 22 epochs of Adam", cited("BOD-VCL", 4)
        ),
        "ssv2-light": Recipe(ssv2_light, "Something-Something v2 by SlowFast's schedule: 22 epochs of SGD"),
        "ssv2": Recipe(
            ssv2,
            "Something-Something v2 for image models: 25 epochs of AdamW",
            cited("image-to-video transfer", 5),
        ),
        "debug": Recipe(debug, "the trajectory of synthetic videos from few labels, on a CPU"),
    },
)
