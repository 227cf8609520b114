"""Plans of the training verbs; each has the options of its verb."""

from stillmotion.cli.commands.training import check_head, with_image_model
from stillmotion.distributed.torchrun import torchrun_world_size
from stillmotion.training.detect import task as detect_task
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.finetune import task as finetune_task
from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.pretrain import task as pretrain_task
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.segment import task as segment_task
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.transfer import task as transfer_task
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.utils.formatting import LabelValue


def pretrain(out: str, config: PretrainConfig, cache_dir: str | None) -> list[LabelValue]:
    return pretrain_task.plan_pretrain(config, out, num_processes=torchrun_world_size())


def transfer(out: str, config: TransferConfig, encoder: str | None, cache_dir: str | None) -> list[LabelValue]:
    return transfer_task.plan_transfer(with_image_model(config, encoder), out, num_processes=torchrun_world_size())


def finetune(out: str, config: FinetuneConfig, folds: tuple[int, ...]) -> list[LabelValue]:
    return finetune_task.plan_finetune(config, out, folds, num_processes=torchrun_world_size())


def detect(out: str, config: DetectConfig, num_box_videos: int) -> list[LabelValue]:
    return detect_task.plan_detect(config, out, num_processes=torchrun_world_size())


def segment(out: str, config: SegmentConfig, head: str, cache_dir: str | None) -> list[LabelValue]:
    check_head(config, head)
    return segment_task.plan_segment(config, out, cache_dir)
