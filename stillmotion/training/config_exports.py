"""A run's complete configuration: plain dataclasses, one for each training verb, written to and read from JSON."""

from stillmotion.training.config import EncoderRunConfig, RunConfig, TrainConfig
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.pretrain.config import PretrainConfig, PretrainDataConfig
from stillmotion.training.run_dir import (
    config_from_dict,
    load_any_config,
    load_config,
    load_pretrain_config,
    pretrain_config_from_dict,
    run_verb,
)
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.tasks import RUN_CONFIGS
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.utils.typed_config import diff_configs, to_dict

__all__ = [
    "RUN_CONFIGS",
    "DetectConfig",
    "EncoderRunConfig",
    "FinetuneConfig",
    "PretrainConfig",
    "PretrainDataConfig",
    "RunConfig",
    "SegmentConfig",
    "TrainConfig",
    "TransferConfig",
    "config_from_dict",
    "diff_configs",
    "load_any_config",
    "load_config",
    "load_pretrain_config",
    "pretrain_config_from_dict",
    "run_verb",
    "to_dict",
]
