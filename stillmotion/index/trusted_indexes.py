"""Which indexes this user has built; an index from elsewhere may name any encoder and any folder."""

import contextlib

from stillmotion.errors import StillmotionError
from stillmotion.index.locations import user_cache_dir
from stillmotion.index.storage.lance_tables import IndexMetadata
from stillmotion.models.pretrained.hub import find_downloaded, is_hub_name
from stillmotion.utils.formatting import printable_name
from stillmotion.utils.hashing import hash_bytes
from stillmotion.utils.spec_options import split_options


def remember_built(uri: str, metadata: IndexMetadata) -> None:
    """Remember that this user has built an index.

    Args:
        uri: Folder or LanceDB URI of the index.
        metadata: What it was built with.
    """
    with contextlib.suppress(OSError):  # without a cache, the index counts as one from elsewhere
        folder = user_cache_dir() / "built-indexes"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _key(uri, metadata)).touch()


def check_trusted(uri: str, metadata: IndexMetadata, *, serves_videos: bool) -> None:
    """Raise if an index from elsewhere would have a model downloaded, or videos of a folder that it names served.

    Args:
        uri: Folder or LanceDB URI of the index.
        metadata: What it says of itself.
        serves_videos: Whether the videos of its folder are served.

    Raises:
        StillmotionError: If it would.
    """
    if (user_cache_dir() / "built-indexes" / _key(uri, metadata)).exists():
        return
    spec = split_options(metadata.encoder)[0]
    effects = [f"show the videos of {printable_name(metadata.videos)}"] * serves_videos
    if is_hub_name(spec) and find_downloaded(spec) is None:
        effects.append(f"download the model {printable_name(spec)}")
    if effects:
        raise StillmotionError(
            f"{uri} was not built by you on this machine and would {' and '.join(effects)}; add --trust-index if that "
            "is what you want"
        )


def _key(uri: str, metadata: IndexMetadata) -> str:
    return hash_bytes(f"{uri}\n{metadata.videos}\n{metadata.encoder}".encode("utf-8", "surrogateescape"))
