"""Which encoder to take where none is named."""

from stillmotion.encoders.flow import TEXT

# On the Hugging Face hub, the better for motion and for a laptop first.
PREFERRED = (
    "facebook/dinov2-small",
    "facebook/dinov2-with-registers-small",
    "facebook/dinov3-vits16-pretrain-lvd1689m",
    "facebook/dinov2-base",
    "facebook/dinov2-with-registers-base",
    "facebook/dinov3-vitb16-pretrain-lvd1689m",
    "facebook/dino-vits16",
    "facebook/dino-vitb16",
)
_FILES = ("config.json", "model.safetensors")


def best() -> str:
    """The text of the best encoder at hand: a model in the hub's local cache, else flow. Nothing is fetched."""
    return next((name for name in PREFERRED if _is_cached(name)), TEXT)


def _is_cached(name: str) -> bool:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:  # it comes with transformers
        return False
    return all(isinstance(try_to_load_from_cache(name, file), str) for file in _FILES)
