"""Models by their names on the Hugging Face hub: from the local cache, and else from the hub. No code is fetched."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.utils.files import read_json

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_CONFIG_FILES = ["config.json", "preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"]
_INDEX = "model.safetensors.index.json"
# Weights that are loaded without executing anything, the better kind first.
_WEIGHTS = (["model*.safetensors", _INDEX], ["pytorch_model*.bin", "pytorch_model.bin.index.json"])


def is_hub_name(spec: str) -> bool:
    """Whether a text can be a model's name on the hub, such as facebook/dinov2-small.

    Paths come first: what exists, or would lie in a folder that does, is none.
    """
    return bool(_NAME.fullmatch(spec)) and not Path(spec).exists() and not Path(spec).parent.exists()


def download_model(name: str) -> Path:
    """The local folder of a model on the hub; it is fetched where the cache lacks it.

    What the cache has is taken as it is, without a word to the hub.
    """
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise StillmotionError(
            f"{name} is no folder here, and models of the hub come by huggingface_hub, which is not installed: "
            "pip install 'stillmotion[models]'"
        ) from None
    with contextlib.suppress(errors.LocalEntryNotFoundError):
        folder = Path(snapshot_download(name, local_files_only=True))
        if _is_complete(folder):
            return folder
    with _wrap_hub_errors(name):
        for weights in _WEIGHTS:
            folder = Path(snapshot_download(name, allow_patterns=_CONFIG_FILES + weights))
            if _is_complete(folder):
                return folder
    raise StillmotionError(
        f"{name} has no config.json, or no model.safetensors or pytorch_model.bin, on the hub; choose a model that "
        "transformers wrote"
    )


def _is_complete(folder: Path) -> bool:
    """Whether a folder has a model's configuration and all files of its weights."""
    if not (folder / "config.json").is_file():
        return False
    for index in (_INDEX, "pytorch_model.bin.index.json"):
        if (folder / index).is_file():
            parts = read_json(folder / index, hint="fetch it again").get("weight_map", {}).values()
            return all((folder / part).is_file() for part in set(parts))
    return any((folder / name).is_file() for name in ("model.safetensors", "pytorch_model.bin"))


@contextlib.contextmanager
def _wrap_hub_errors(name: str) -> Iterator[None]:
    """Turns what the hub, or the way to it, raises into one line; of warnings nothing is shown."""
    from huggingface_hub import constants, errors, utils

    before = utils.logging.get_verbosity()
    utils.logging.set_verbosity_error()
    try:
        yield
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except errors.GatedRepoError:
        raise StillmotionError(
            f"{name} is for those who accept its terms: do so on its page of the hub, and log in by hf auth login"
        ) from None
    except errors.RepositoryNotFoundError:
        raise StillmotionError(
            f"{name} is no folder here, and there is no model of this name on {constants.ENDPOINT}; mend the name"
        ) from None
    except Exception as error:  # on the way to a hub anything may fail
        reason = str(error.__cause__ or error).strip().partition("\n")[0] or type(error).__name__
        raise StillmotionError(
            f"{name} is no folder here and not in the cache ({constants.HF_HUB_CACHE}), and {constants.ENDPOINT} "
            f"did not give it ({reason}); fetch it where there is a network, or give a folder"
        ) from None
    finally:
        utils.logging.set_verbosity(before)
