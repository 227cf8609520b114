from stillmotion.models.backbones import create_backbone as create_backbone
from stillmotion.models.backbones import list_backbones as list_backbones
from stillmotion.models.backbones.base import Backbone as Backbone
from stillmotion.models.heads import MLPHead as MLPHead
from stillmotion.models.heads import VideoClassifier as VideoClassifier
from stillmotion.models.input_config import InputConfig as InputConfig
from stillmotion.models.pretrained.weight_loading import load_weights as load_weights
