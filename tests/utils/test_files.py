"""Files are written atomically, folders have one writer, inputs are never written to."""

import errno
import fcntl
import multiprocessing
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from stillmotion.errors import StillmotionError
from stillmotion.utils.file_lock import LOCK_FILE, lock_dir, remove_stale_temp_files
from stillmotion.utils.files import (
    GENERATED_MARKER,
    check_no_overlap,
    check_writable,
    ensure_dir,
    read_json,
    write_atomic,
    write_json,
    write_text,
)
from stillmotion.utils.hashing import file_fingerprint

FORK = multiprocessing.get_context("fork")


def test_a_folder_is_made_with_those_above_it_and_may_be_there(tmp_path: Path) -> None:
    assert ensure_dir(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert ensure_dir(str(tmp_path / "a"), mark_generated=True) == tmp_path / "a"
    assert (tmp_path / "a" / "b").is_dir()
    assert (tmp_path / "a" / GENERATED_MARKER).exists()


def test_a_path_that_cannot_be_written_is_one_line_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for check in (ensure_dir, check_writable):
        with pytest.raises(StillmotionError, match=r"^cannot write to .*/file/x: Not a directory; choose another --b$"):
            check(tmp_path / "file" / "x", option_name="--b")
    with pytest.raises(StillmotionError, match="it is a folder; choose another --out"):
        check_writable(tmp_path, is_file=True)
    assert check_writable(tmp_path / "new" / "dir") == tmp_path / "new" / "dir"
    assert not (tmp_path / "new").exists()  # only checked
    check_writable(tmp_path / "new" / "file", is_file=True, create=True)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_has_the_mode_of_the_umask_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.txt", "one")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").read_text() == "one"
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_name_of_255_bytes_and_one_that_is_no_text_can_be_written(tmp_path: Path) -> None:
    long = tmp_path / ("a" * 250 + ".json")
    write_json(long, {"name": os.fsdecode(b"caf\xe9")})
    assert read_json(long, hint="") == {"name": os.fsdecode(b"caf\xe9")}
    write_text(tmp_path / os.fsdecode(b"caf\xe9"), os.fsdecode(b"caf\xe9"))
    assert (tmp_path / os.fsdecode(b"caf\xe9")).read_bytes() == b"caf\xe9"


def test_a_failed_write_keeps_the_existing_file(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_text("before")

    def fail_on_full_disk(partial: Path) -> None:
        partial.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StillmotionError, match=r"cannot write .*a\.bin: No space left on device \([\d,]+ MiB free\)"):
        write_atomic(file, fail_on_full_disk)
    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]

    def fail_with_bug(partial: Path) -> None:
        raise KeyError("a fault of ours stays one")

    with pytest.raises(KeyError):
        write_atomic(file, fail_with_bug)


@pytest.mark.parametrize("text", ["PytorchStreamWriter failed writing file", "basic_ios::clear: iostream error"])
def test_what_torch_raises_on_a_full_disk_is_reported_as_one(tmp_path: Path, text: str) -> None:
    def fail_like_torch(partial: Path) -> None:
        raise RuntimeError(text)

    with pytest.raises(StillmotionError, match=r"cannot write .*a\.bin"):
        write_atomic(tmp_path / "a.bin", fail_like_torch)


def test_damaged_json_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1')
    with pytest.raises(StillmotionError, match=r"a\.json is torn or damaged .*; delete it"):
        read_json(tmp_path / "a.json", hint="delete it")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "b.json", hint="delete it")


def hold_lock(folder: Path, is_held: "multiprocessing.synchronize.Event") -> None:
    with lock_dir(folder):
        is_held.set()
        time.sleep(60)


def test_a_folder_has_one_writer_and_is_free_when_that_one_is_killed(tmp_path: Path) -> None:
    is_held = FORK.Event()
    holder = FORK.Process(target=hold_lock, args=(tmp_path / "run", is_held))
    holder.start()
    assert is_held.wait(20)
    with (
        pytest.raises(StillmotionError, match=f"is being written by process {holder.pid} on "),
        lock_dir(tmp_path / "run"),
    ):
        pass
    (tmp_path / "run" / f".{holder.pid}-3.part").write_text("left behind")
    holder.kill()
    holder.join()
    with lock_dir(tmp_path / "run"):
        assert str(os.getpid()) in (tmp_path / "run" / LOCK_FILE).read_text()
        assert not list((tmp_path / "run").glob(".*.part"))
    with lock_dir(tmp_path / "run"):
        pass


def test_a_lock_without_a_name_is_waited_for(tmp_path: Path) -> None:
    with open(tmp_path / LOCK_FILE, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        naming = threading.Timer(0.2, lambda: print("process 3 on moon", file=handle, flush=True))
        naming.start()
        with pytest.raises(StillmotionError, match="is being written by process 3 on moon"), lock_dir(tmp_path):
            pass
        handle.truncate(0)  # the holder has finished and releases the lock
        threading.Timer(0.2, handle.close).start()
        with lock_dir(tmp_path):
            assert handle.closed


def test_an_output_may_not_be_hold_or_lie_in_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.mp4").touch()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for out in ("in", "in/a.mp4", "in/below", "in/../in", "link", "link/below", "."):
        with pytest.raises(StillmotionError, match="which is read; choose another --out"):
            check_no_overlap(tmp_path / out, [tmp_path / "in"])
    with pytest.raises(StillmotionError, match="would write over"):
        check_no_overlap(tmp_path / "in" / ".." / "link" / "a.mp4", [tmp_path / "in" / "a.mp4"])
    check_no_overlap(tmp_path / "out", [tmp_path / "in", tmp_path / "nowhere"])
    check_no_overlap(tmp_path / "inner", [tmp_path / "in"])


def test_a_fingerprint_tells_content_and_not_time_or_place(tmp_path: Path) -> None:
    content = bytearray(os.urandom(1_000_000))
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(content)
    os.utime(tmp_path / "b", (1, 1))
    assert file_fingerprint(tmp_path / "a") == file_fingerprint(tmp_path / "b")
    for position in (0, 65_535, len(content) - 1):
        changed = bytearray(content)
        changed[position] ^= 1
        (tmp_path / "b").write_bytes(changed)
        assert file_fingerprint(tmp_path / "a") != file_fingerprint(tmp_path / "b")
    (tmp_path / "b").write_bytes(content[:-1])
    assert file_fingerprint(tmp_path / "a") != file_fingerprint(tmp_path / "b")
    assert file_fingerprint(tmp_path / "nowhere") != file_fingerprint(tmp_path / "a")
    (tmp_path / "frames").mkdir()
    (tmp_path / "frames" / "1.jpg").write_bytes(b"x")
    fingerprint = file_fingerprint(tmp_path / "frames")
    (tmp_path / "frames" / "1.jpg").rename(tmp_path / "frames" / "2.jpg")
    assert file_fingerprint(tmp_path / "frames") != fingerprint


def test_what_another_machine_is_writing_is_left_alone_until_it_is_known_to_have_ended(tmp_path: Path) -> None:
    same_host, other_host = ".999999999-0.part.mp4", ".999999999-0-00c0ffee.part.mp4"
    for name in (same_host, other_host, ".notes-1.part"):
        (tmp_path / name).touch()
    remove_stale_temp_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [other_host, ".notes-1.part"]
    remove_stale_temp_files(tmp_path, include_other_hosts=True)
    assert [path.name for path in tmp_path.iterdir()] == [".notes-1.part"]


def test_too_many_nested_folders_are_one_line(tmp_path):
    with pytest.raises(StillmotionError, match=r"cannot write to .*; choose another --out") as caught:
        ensure_dir(tmp_path.joinpath(*["a"] * 2000))
    assert len(str(caught.value)) < 5000
