"""Download a model from the Hugging Face hub, cache first; code is never downloaded."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.utils.files import read_json

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_CONFIG_FILES = ["config.json", "preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"]
_INDEX = "model.safetensors.index.json"
# Files of weights that load without executing code, in order of preference.
_WEIGHTS = (["model*.safetensors", _INDEX], ["pytorch_model*.bin", "pytorch_model.bin.index.json"])


def is_hub_name(spec: str) -> bool:
    """Whether a spec can be a model's name on the hub, such as facebook/dinov2-small.

    Paths have priority: a spec that exists, or whose parent folder exists, is a path.
    """
    return bool(_NAME.fullmatch(spec)) and not Path(spec).exists() and not Path(spec).parent.exists()


def download_model(name: str) -> Path:
    """Return the local folder of a model on the hub, and download it if the cache does not have it.

    If the cache has it, the hub is not contacted.

    Args:
        name: Name on the hub, such as facebook/dinov2-small.

    Returns:
        Folder in the cache.

    Raises:
        StillmotionError: If the model does not exist, has no usable weights, or cannot be downloaded.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise StillmotionError(
            f"{name} is not a local folder, and huggingface_hub is not installed. Run: pip install "
            "'stillmotion[models]'"
        ) from None
    if (cached := find_downloaded(name)) is not None:
        return cached
    with _wrap_hub_errors(name):
        for weights in _WEIGHTS:
            folder = Path(snapshot_download(name, allow_patterns=_CONFIG_FILES + weights))
            if _is_complete(folder):
                return folder
    raise StillmotionError(
        f"{name} has no config.json, or no model.safetensors or pytorch_model.bin, on the hub. Choose a model in the "
        "format of transformers."
    )


def find_downloaded(name: str) -> Path | None:
    """Return the folder of a model in the hub's local cache; None if it is not there.

    Args:
        name: Name on the hub.
    """
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        return None
    with contextlib.suppress(errors.LocalEntryNotFoundError):
        folder = Path(snapshot_download(name, local_files_only=True))
        if _is_complete(folder):
            return folder
    return None


def _is_complete(folder: Path) -> bool:
    """Whether a folder has a config and all files of weights."""
    if not (folder / "config.json").is_file():
        return False
    for index in (_INDEX, "pytorch_model.bin.index.json"):
        if (folder / index).is_file():
            parts = read_json(folder / index, hint="Download the model again.").get("weight_map", {}).values()
            return all((folder / part).is_file() for part in set(parts))
    return any((folder / name).is_file() for name in ("model.safetensors", "pytorch_model.bin"))


@contextlib.contextmanager
def _wrap_hub_errors(name: str) -> Iterator[None]:
    """Turn errors of the hub or the network into one line, and silence warnings."""
    from huggingface_hub import constants, errors, utils

    before = utils.logging.get_verbosity()
    utils.logging.set_verbosity_error()
    try:
        yield
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except errors.GatedRepoError:
        raise StillmotionError(
            f"{name} is a gated model. Accept its terms on the hub and run `hf auth login`."
        ) from None
    except errors.RepositoryNotFoundError:
        raise StillmotionError(
            f"{name} is not a local folder, and {constants.ENDPOINT} has no model of this name. Check the spelling."
        ) from None
    except Exception as error:  # the network can fail in any way
        reason = str(error.__cause__ or error).strip().partition("\n")[0] or type(error).__name__
        raise StillmotionError(
            f"{name} is not a local folder and not in the cache ({constants.HF_HUB_CACHE}), and downloading it from "
            f"{constants.ENDPOINT} failed ({reason}). Download it where there is a network, or give a folder."
        ) from None
    finally:
        utils.logging.set_verbosity(before)
