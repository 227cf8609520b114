"""Encoders: any network by one text, what it wants to be shown, and what it says of videos."""

from stillmotion.data.reading import Reading
from stillmotion.encoders.best import best
from stillmotion.encoders.encoder import Encoder, Origin, Vectors
from stillmotion.encoders.features import KINDS, Features, Kind, Progress, clips_of, extract
from stillmotion.encoders.load import ENCODERS, full_text, load, read_text

__all__ = [
    "ENCODERS",
    "KINDS",
    "Encoder",
    "Features",
    "Kind",
    "Origin",
    "Progress",
    "Reading",
    "Vectors",
    "best",
    "clips_of",
    "extract",
    "full_text",
    "load",
    "read_text",
]
