"""BLAKE2b hashes: the integrity check of stored data, and fingerprints of files."""

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any

_END_BYTES, _NUM_BLOCKS, _BLOCK_BYTES = 65536, 16, 4096  # bytes at both ends of a file, and blocks between them


def hash_bytes(*parts: bytes | memoryview, digest_size: int = 16) -> str:
    """BLAKE2b hash of the parts as if they were concatenated.

    Args:
        parts: Bytes to hash.
        digest_size: Size of the hash in bytes.

    Returns:
        The hash in hexadecimal digits, two per byte.
    """
    digest = hashlib.blake2b(digest_size=digest_size)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def find_zip_damage(file: str | Path) -> str | None:
    """Compare the content of a zip archive, such as a file of `torch.save`, with the CRCs stored in it.

    Args:
        file: File to read.

    Returns:
        What is wrong with it; None if every member is as it was written.
    """
    try:
        with zipfile.ZipFile(file) as opened:
            member = opened.testzip()
    except OSError:
        raise
    except Exception as error:  # zipfile may raise anything on damaged headers
        return str(error) or type(error).__name__
    return None if member is None else f"the checksum of {member} is wrong"


def hash_path(path: str | Path) -> str:
    """BLAKE2b hash of all bytes of a file, or of the files in a folder (not below it) with their names.

    Args:
        path: File or folder.

    Returns:
        The hash in hexadecimal digits; that of a file is `hash_bytes` of its content.

    Raises:
        OSError: If it cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(Path(path).iterdir()) if os.path.isdir(path) else [Path(path)]:
        with open(file, "rb") as opened:
            if file != Path(path):
                digest.update(f"{os.fstat(opened.fileno()).st_size}\n".encode() + os.fsencode(file.name))
            while block := opened.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def file_fingerprint(file: str | Path) -> str:
    """Hash of a file's size, its ends and a sample of blocks between them, which is fast for large files.

    A file that cannot be read has the hash of its error number.

    Args:
        file: File, or folder whose files are hashed together with their names.

    Returns:
        The hash in hexadecimal digits.
    """
    path = Path(file)
    digest = hashlib.blake2b(digest_size=16)
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for part in files:
            if part.is_file():
                digest.update(os.fsencode(part.name) if path.is_dir() else b"")
                _hash_sampled_blocks(part, digest)
    except OSError as error:
        digest.update(str(error.errno).encode())
    return digest.hexdigest()


def _hash_sampled_blocks(file: Path, digest: Any) -> None:
    with open(file, "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        digest.update(f"{size}\n".encode())
        digest.update(opened.read(_END_BYTES))
        between = size - 2 * _END_BYTES
        for i in range(_NUM_BLOCKS if between > 0 else 0):
            opened.seek(_END_BYTES + between * i // _NUM_BLOCKS)
            digest.update(opened.read(_BLOCK_BYTES))
        opened.seek(max(_END_BYTES, size - _END_BYTES))
        digest.update(opened.read(_END_BYTES))
