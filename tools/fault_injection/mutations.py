"""Mutate configurations, lists and index files: each is read, or refused in one line that a user understands."""

import contextlib
import hashlib
import io
import json
import queue
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from stillmotion.cli.exit_codes import exit_on_error
from tools.fault_injection.guarded_process import GuardedProcess
from tools.fault_injection.jobs import NUM_CONCURRENT
from tools.fault_injection.mutation_targets import TARGETS
from tools.fault_injection.outcomes import Outcome, attack

_WORDS = (b"", b" ", b"\n", b"\0", b"\xff\xfe", b'"', b",", b"/", b"..", b"-1", b"nan", b"1e999", b"9" * 30, b"[", b"}")
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 10**9, 10**30, 0.5, float("nan"), float("inf")),
    *("", "x", "\udcff", "../..", [], [3], [[]], {}, {"name": "x"}),
)
_MAX_BLOCK = 4096


class Mutation(NamedTuple):
    """A file of a target and its new content; None removes the file."""

    target: str
    folder: Path
    pristine: Path
    file: Path
    content: bytes | None
    expected: str | None


def mutate_targets(
    name: str, targets: Iterable[str], pristine: Path, work_dir: Path, *, count: int, seed: int
) -> Outcome:
    """Mutate the files of targets and read them, in processes that may hang or crash.

    Args:
        name: Name of the attack.
        targets: Names of the targets, which take turns.
        pristine: Folder of their undamaged folders.
        work_dir: Folder to work in.
        count: Number of mutations.
        seed: Seed of the mutations.
    """
    names = list(targets)
    slots: queue.Queue[tuple[Path, GuardedProcess[Mutation]]] = queue.Queue()
    for number in range(NUM_CONCURRENT):
        # A mutated path may lead out of the folder by two levels.
        folder = work_dir / str(number) / "a" / "b"
        shutil.copytree(pristine, folder)
        slots.put((folder, GuardedProcess(read_mutated)))
    undamaged = {name: digest_target(name, pristine / name) for name in names}  # each must be readable
    expected = {name: digest for name, digest in undamaged.items() if TARGETS[name].is_checked}

    def mutate(number: int, rng: random.Random) -> str | None:
        target = names[number % len(names)]
        folder, process = slots.get()
        try:
            files = sorted(
                file for pattern in TARGETS[target].files for file in (folder / target).glob(pattern) if file.is_file()
            )
            file = rng.choice(files)
            content = mutate_bytes(file.read_bytes(), rng)
            place = pristine / target
            failure = process(Mutation(target, folder / target, place, file, content, expected.get(target)))
            return failure and f"{target}, {file.name}: {failure}"
        finally:
            slots.put((folder, process))

    outcome = attack(name, count, seed, mutate, num_concurrent=NUM_CONCURRENT)
    while not slots.empty():
        slots.get()[1].close()
    return outcome


def digest_target(target: str, folder: Path) -> str:
    """Return a digest of what is read from a target.

    Args:
        target: Name of the target.
        folder: Its folder.
    """
    return hashlib.sha256(repr(TARGETS[target].read(folder)).encode("utf-8", "surrogateescape")).hexdigest()


def read_mutated(mutation: Mutation) -> str | None:
    """Read a target with a mutated file, and restore it.

    Args:
        mutation: The mutation.

    Returns:
        What went wrong, or None.
    """
    before = mutation.file.read_bytes()
    if mutation.content is None:
        mutation.file.unlink()
    else:
        mutation.file.write_bytes(mutation.content)
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message), exit_on_error():
            digest = digest_target(mutation.target, mutation.folder)
        if mutation.expected is not None and digest != mutation.expected:
            return "what is read has changed silently"
    except SystemExit as stop:
        lines = message.getvalue().rpartition("stillmotion: ")[2].splitlines()  # behind warnings
        return None if stop.code == 2 and len(lines) == 1 else f"exit code {stop.code}: {lines}"
    except BaseException as error:  # a panic of a Rust library is no Exception
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]}"
    finally:
        if TARGETS[mutation.target].is_written:
            shutil.rmtree(mutation.folder)
            shutil.copytree(mutation.pristine, mutation.folder)
        else:
            mutation.file.write_bytes(before)
    return None


def mutate_bytes(content: bytes, rng: random.Random) -> bytes | None:
    """Return the content of a file changed somewhere, as editors, programs and disks do; None is no file at all.

    Args:
        content: The content.
        rng: Random generator.
    """
    if rng.random() < 0.6:
        with contextlib.suppress(ValueError):
            tree = json.loads(content)
            if isinstance(tree, dict | list) and tree:
                return json.dumps(_mutate_tree(tree, rng)).encode()
    start = rng.randrange(len(content) + 1)
    block = content[start : start + rng.randrange(1, _MAX_BLOCK)]
    word = rng.choice(_WORDS)
    lines = content.splitlines(keepends=True) or [b""]
    line = rng.randrange(len(lines))
    changes = (
        content[:start],
        content[:start] + word + content[start:],
        content[:start] + word + content[start + rng.randrange(1, 9) :],
        content[:start] + bytes([rng.randrange(256)]) + content[start + 1 :],
        content[:start]
        + bytes(byte ^ 1 << rng.randrange(8) for byte in content[start : start + 1])
        + content[start + 1 :],
        content[:start] + bytes(len(block)) + content[start + len(block) :],
        content[:start] + rng.randbytes(len(block)) + content[start + len(block) :],
        content[:start] + block + content[start:],
        b"".join([*lines[:line], *lines[line + 1 :]]),
        b"".join([*lines[:line], lines[line], *lines[line:]]),
        b"".join(rng.sample(lines, len(lines))),
        b"\xef\xbb\xbf" + content,
        content.decode("latin-1").encode("utf-16"),
        content.replace(b" ", b"\t").replace(b"\n", b"\r\n"),
        rng.randbytes(rng.randrange(100)),
        word,
        None,
    )
    return rng.choice(changes)


def _mutate_tree(tree: Any, rng: random.Random) -> Any:
    """Change a random part of plain data: another value, one more, or one less."""
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = rng.choice(keys)
    if isinstance(tree[key], dict | list) and tree[key] and rng.random() < 0.8:
        tree[key] = _mutate_tree(tree[key], rng)
    elif rng.random() < 0.2:
        del tree[key]
    elif rng.random() < 0.1 and isinstance(tree, dict):
        tree[f"{key}x"] = rng.choice(_VALUES)
    else:
        tree[key] = rng.choice(_VALUES)
    return tree
