"""A run's complete configuration: plain dataclasses, one for each training verb, written to and read from JSON."""

from stillmotion.config.base import RunConfig, StartedConfig, TrainConfig
from stillmotion.config.detect import DetectConfig
from stillmotion.config.files import (
    CONFIGS,
    any_from_json,
    differences,
    from_json,
    load_config,
    read_any_config,
    read_config,
    to_json,
    verb_of,
)
from stillmotion.config.finetune import FinetuneConfig
from stillmotion.config.pretrain import Config, DataConfig
from stillmotion.config.segment import SegmentConfig
from stillmotion.config.transfer import TransferConfig

__all__ = [
    "CONFIGS",
    "Config",
    "DataConfig",
    "DetectConfig",
    "FinetuneConfig",
    "RunConfig",
    "SegmentConfig",
    "StartedConfig",
    "TrainConfig",
    "TransferConfig",
    "any_from_json",
    "differences",
    "from_json",
    "load_config",
    "read_any_config",
    "read_config",
    "to_json",
    "verb_of",
]
