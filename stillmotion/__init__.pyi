from stillmotion.encoders.embedding import Embedding as Embedding
from stillmotion.encoders.embedding import Embeddings as Embeddings
from stillmotion.encoders.encoder import Encoder as Encoder
from stillmotion.encoders.loading import load as load
from stillmotion.errors import StillmotionError as StillmotionError

__version__: str
