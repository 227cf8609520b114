"""Plans of the training verbs; each has the options of its verb."""

from stillmotion.amounts import Row
from stillmotion.cli.dry import processes
from stillmotion.cli.train import check_head, with_encoder
from stillmotion.config import Config
from stillmotion.config.detect import DetectConfig
from stillmotion.config.finetune import FinetuneConfig
from stillmotion.config.segment import SegmentConfig
from stillmotion.config.transfer import TransferConfig
from stillmotion.tasks import plans


def pretrain(out: str, config: Config, cache: str | None) -> list[Row]:
    return plans.pretraining(config, out, processes=processes())


def transfer(out: str, config: TransferConfig, encoder: str | None, cache: str | None) -> list[Row]:
    return plans.transferring(with_encoder(config, encoder), out, processes=processes())


def finetune(out: str, config: FinetuneConfig, folds: tuple[int, ...]) -> list[Row]:
    return plans.finetuning(config, out, folds, processes=processes())


def detect(out: str, config: DetectConfig, draw: int) -> list[Row]:
    return plans.detecting(config, out, processes=processes())


def segment(out: str, config: SegmentConfig, head: str, cache: str | None) -> list[Row]:
    check_head(config, head)
    return plans.segmenting(config, out, cache)
