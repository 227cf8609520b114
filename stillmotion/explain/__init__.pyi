from stillmotion.explain.class_saliency import explain_class as explain_class
from stillmotion.explain.clip_analysis import analyze_clip as analyze_clip
from stillmotion.explain.config import SaliencyTarget as SaliencyTarget
from stillmotion.explain.koopman_modes import KoopmanModes as KoopmanModes
from stillmotion.explain.saliency import grad_cam as grad_cam
from stillmotion.explain.saliency import saliency_tube as saliency_tube
