"""Mistakes on the command line: each is one line that names the value and the remedy, and nothing is written."""

import re
import shlex
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.davis_like import write_davis

from stillmotion.cli.main import dispatch
from stillmotion.errors import StillmotionError

# Commands and parts of their error messages. VIDEOS are labeled videos with one unreadable file.
ERRORS = {
    "pretain": "there is no verb 'pretain'; did you mean pretrain",
    "probe laptop --colour red": "there is no option --colour",
    "browse VIDEOS b": "unexpected argument 'b'",
    'browse ""': "the path is empty",
    "embed flow@frames=² --data VIDEOS --out a.npz": "Unknown option 'frames=²'",
    "transfer --encoder VIDEOS@layer=² --data VIDEOS --out NEW": "layer",
    "probe flow --data VIDEOS --num-clips 0": "num_clips must be at least 1, got 0",
    "browse --hlep": "there is no option --hlep; did you mean --help",
    "probe laptop --presett logistic": "no option --presett; did you mean --preset?",
    "embed laptop --data VIDEOS --out a.npz --num-clips many": "--num-clips",
    "embed laptop --data VIDEOS --out NEW --num-workers -5": "num_workers is -5",
    "pretrain --data VIDEOS --out NEW --train.precision fp8": "'fp8'.*fp32.*bf16.*fp16",
    "pretrain --data VIDEOS --out NEW --optim.batch-size 0": "optim.batch_size is 0",
    "pretrain --data VIDEOS": "--out",
    "pretrain laptop --data VIDEOS --out NEW": "unexpected argument 'laptop'; a recipe is given as --recipe",
    "pretrain --out NEW": "--data",
    "pretrain --data VIDEOS --layout ufc101 --out NEW": "no layout 'ufc101'; did you mean ucf101",
    "pretrain --recipe laptop --config FILE --out NEW": "both set all options",
    "pretrain --debug --config FILE --out NEW": "--debug shrinks a recipe",
    "pretrain --config NOWHERE --out NEW": "no such file or folder",
    "pretrain --recipe k400-simcrl --out NEW": "no recipe 'k400-simcrl'; did you mean k400-simclr",
    "pretrain --data NOWHERE --out NEW": "no such file or folder",
    "pretrain --data EMPTY --out NEW": "(?i)no video found",
    "pretrain --data VIDEOS --out NEW --optim.batch-size 64": "64",
    "pretrain --data VIDEOS --out FILE/run --optim.batch-size 4": "(?i)cannot write to",
    "pretrain --debug --out NEW --optim.batch-size 9 --train.grad-accum-steps 2": "not divisible .*multiple of 2",
    "pretrain --debug --out NEW --optim.batch-size 100 --train.grad-accum-steps 2": "fewer than --train.grad-accum",
    "pretrain --debug --out NEW --optim.batch-size 1": r"at least 2 videos per batch, got 1\. Increase --optim",
    "pretrain --debug --out NEW --optim.lr 0": "optim.lr is 0.0; it must be positive",
    "pretrain --debug --out NEW --device toaster": "device 'toaster' cannot be used",
    "pretrain --debug --out NEW --train.loggers wand": "no logger 'wand'; did you mean wandb",
    "pretrain --debug --out NEW --train.save-epochs 0": "epochs are counted from 1",
    "pretrain --debug --out NEW --train.save-epochs 999": "contains epoch 999, but the run has only",
    "pretrain --debug --out NEW --train.compile --train.activation-checkpointing": "cannot be combined",
    "pretrain --debug --out NEW --num-workers -5": "data.num_workers is -5; it must be at least -1",
    "pretrain --debug --out NEW --data.num-frames 0": "data.num_frames is 0; it must be at least 1",
    "pretrain --debug --out NEW --data.augment wek": "no augmentation 'wek'; did you mean weak",
    "pretrain --debug --out NEW --data.shuffle-buffer 3": "--data.shuffle-buffer is 3, but the data set is not sharded",
    "pretrain --debug --out NEW --data.cached-frames 7": "data.cached_frames is 7, but .* does not use tokens",
    "pretrain --debug --out NEW --method.views.schedule often": "'often'.*schedule-1st-2nd-mix",
    "pretrain --recipe tokens-vididi --data VIDEOS --out NEW": "No image model given. Add --method.model.image-model",
    "pretrain --recipe tokens-vididi --debug --out NEW --data.cached-frames 5": "10 frames .*--data.cached-frames 16",
    "pretrain --recipe tokens-vididi --debug --out NEW --method.views.derivative-color random-hue": "not apply to",
    "pretrain --recipe tokens-vididi --debug --out NEW --data.augment-on device": "is 'device', but tokens_cnn",
    "report NOWHERE": "no such file or folder",
    "report FILE": "is not a run",
    "report": "RUN|FOLDER",
    "probe nowhere --data VIDEOS": "Unknown encoder",
    "probe NOWHERE@frames=8 --data VIDEOS": "nowhere: no such file or folder",
    "prepare --data NOWHERE --out NEW": "no such file or folder",
    "demo --out NEW --num-seeds 0": "seeds",
    "detect --data synthetic --out NEW": "--encoder",
    "detect --recipe vidid --out NEW": "detect has no recipe 'vidid'; did you mean vididi?",
    "detect --debug --data.min-box-score 2 --out NEW": "data.min_box_score is 2.0",
    "detect --debug --data NOWHERE --out NEW": "no such file or folder",
    "detect --debug --data.train-short-side 8 9 --out NEW": "raise --data.train-short-side",
    "detect --debug --data.nothing 2 --out NEW": "data.nothing",
    "finetune --data synthetic --out NEW": "--encoder",
    "finetune --encoder debug:k400-simclr --out NEW": "--data",
    "finetune --recipe sever --out NEW": "did you mean severe or severe-ssv2?",
    "finetune --debug --data.target sound --out NEW": "Choose one with --data.target: color, shape",
    "finetune --debug --data.target '' --out NEW": "several targets. Choose one",
    "finetune --debug --optim.batch-size 5 --head.mixup-alpha 0.2 --out NEW": "to a multiple of 2",
    "finetune --debug --train.eval-every-epochs 1 --out NEW": "finetune has no online evaluation",
    "finetune --debug --head.dropout 1 --out NEW": "head.dropout",
    "segment --out NEW": "--encoder",
    "segment --encoder debug:k400-simclr --out NEW": "--data",
    "segment --recipe breakfats --out NEW": "did you mean breakfast",
    "segment --debug --data.feature-stride 0 --out NEW": "data.feature_stride is 0",
    "segment --debug --train.precision bf16 --out NEW": "in fp32",
    "segment --debug --head lstm --out NEW": "invalid choice",
    "transfer --out NEW": "--encoder is missing",
    "transfer --encoder nowhere --out NEW": "--data",
    "transfer --encoder nowhere --data synthetic --out NEW": "no config.json",
    "transfer --recipe dino-b16 --debug --data.image-size 25 --out NEW": "a multiple of 8",
    "transfer --recipe dinov9-b16 --debug --out NEW": "did you mean",
    "transfer --recipe dino-b16 --debug --out NEW --image-model.layer 7": "1 to 2",
    "geometry nowhere": "nowhere",
    "order": "--encoder is missing",
    "order debug:k400-simclr --action-pairs NOWHERE": "no such file or folder",
    "order debug:k400-simclr --num-frames 1 --num-synthetic 10": "num_frames is 1",
    "retrieve --data VIDEOS": "--encoder is missing",
    "retrieve debug:k400-simclr --data EMPTY": "(?i)no video found",
    "retrieve debug:k400-simclr --data VIDEOS --protocol loo": "'loo'",
    "cluster laptop --data VIDEOS": "add --out",
    "search VIDEOS/dark/0.mp4": "give --index FOLDER, or --encoder",
    "search VIDEOS/dark/0.mp4 --encoder flow --index VIDEOS": "give --index FOLDER, or --encoder",
    "search NOWHERE.mp4 --encoder flow --data VIDEOS": "no such file or folder",
    "search VIDEOS/dark/broken.mp4 --encoder flow --data VIDEOS": "broken.mp4",
    "search VIDEOS/dark/0.mp4 --encoder flow --data VIDEOS --top-k 0": "0",
    "index NOWHERE --encoder flow": "no such file or folder",
    "index VIDEOS --encoder flow --out VIDEOS/index": "--out",
    "propagate debug:k400-simclr --data DAVIS --resolution 480p --out NEW": "480p",
    "propagate debug:k400-simclr --data DAVIS --resolution 48p --image-size 480 --out NEW": "'480'",
    "propagate debug:k400-simclr --data DAVIS --resolution 48p --layer 99 --out NEW": "layer is 99",
    "propagate debug:k400-simclr --data DAVIS --resolution 48p --sequences third --out NEW": "'third'",
    "static-dynamic bake": "there is no static-dynamic 'bake'; did you mean make?",
    "static-dynamic make --data VIDEOS --variant moving --out NEW": "invalid choice",
    "static-dynamic evaluate laptop --out NEW": "--data, --static-data or --dynamic-data",
    "study confusing": "there is no study 'confusing'; did you mean confounding?",
    "study confounding --out NEW --confounding-strength 3": "3.0",
    "study confounding --out NEW --num-values 9 2 2 2": "color has 9 values",
    "data verify imagenet VIDEOS": "imagenet",
    "data verify ucf101 VIDEOS": "(?i)no annotation lists of ucf101",
    "data make": "there is no data 'make'; choose one of verify",
    "search VIDEOS/dark/0.mp4 --dry-run": "search has no --dry-run",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("errors")
    videos = write_class_folders(root / "videos", videos_per_class=3, num_frames=8, image_size=32, with_broken=True)
    (root / "empty").mkdir()
    (root / "file").touch()
    return {
        "VIDEOS": videos,
        "NOWHERE": root / "nowhere",
        "EMPTY": root / "empty",
        "FILE": root / "file",
        "NEW": root / "new",
        "DAVIS": write_davis(root / "davis"),
    }


@pytest.mark.parametrize("line", ERRORS)
def test_a_mistake_is_one_line(line: str, paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(paths["NEW"].parent / "cache"))
    typed = line
    for word, path in paths.items():
        typed = re.sub(rf"\b{word}\b", str(path), typed)
    with pytest.raises(StillmotionError) as error:
        dispatch(shlex.split(typed))
    message = str(error.value)
    assert re.search(ERRORS[line], message), message
    assert "\n" not in message
    assert not paths["NEW"].exists()
