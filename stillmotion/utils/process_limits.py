"""Limits on what this process may do from now on, for the decoding of a stranger's files; Linux only."""

import ctypes
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

# System calls and constants of Landlock, see man 7 landlock. The numbers are the same on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION, _RULE_PATH_BENEATH, _PR_SET_NO_NEW_PRIVS = 1, 1, 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_FILE_ACCESS = {1: 2**13 - 1, 2: 2**14 - 1, 3: 2**15 - 1}  # by version
_ALL_TCP, _TCP_VERSION = 3, 4


class _Ruleset(ctypes.Structure):
    _fields_ = (("file_access", ctypes.c_uint64), ("network_access", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def limit_memory(num_bytes: float) -> None:
    """Limit the memory that this process may allocate besides what it has; beyond it, allocations fail.

    Args:
        num_bytes: Further bytes.
    """
    if sys.platform != "linux":
        return
    import resource

    match = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    allocated = 1024 * int(match[1]) if match else 0
    hard_limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = int(allocated + num_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard_limit < 0 else min(limit, hard_limit), hard_limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no memory dump of a crash is left behind


def restrict_files(readable: Iterable[str | Path]) -> bool:
    """Let this thread, and what it starts, open only some files for reading, no file for writing, and no connection.

    Installed programs and libraries stay readable, and open files stay open.

    Args:
        readable: Files and folders that may be read.

    Returns:
        Whether the kernel supports it: Linux 5.13, and 6.7 for connections.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    if version < 1:
        return False
    network_access = _ALL_TCP if version >= _TCP_VERSION else 0
    access = _ALL_FILE_ACCESS[min(version, max(_ALL_FILE_ACCESS))]
    size = ctypes.sizeof(_Ruleset) if network_access else ctypes.sizeof(ctypes.c_uint64)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(_Ruleset(access, network_access)), size, 0)
    if ruleset < 0:
        return False
    try:
        for path in (*readable, *_program_folders()):
            _allow(libc, ruleset, path, _READ_FILE | _READ_DIR | _EXECUTE)
        _allow(libc, ruleset, "/dev", _READ_FILE | _READ_DIR | _WRITE_FILE)  # GPUs, /dev/null
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _program_folders() -> set[str]:
    installed = {path for name, path in sysconfig.get_paths().items() if name not in ("data", "scripts")}
    own = str(Path(__file__).parents[1])
    system = {"/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/sys", "/opt"}
    return installed | system | {sys.base_prefix, sys.prefix, own, site.getusersitepackages()}


def _allow(libc: ctypes.CDLL, ruleset: int, path: str | Path, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine
        return
    try:
        if not os.path.isdir(path):
            access &= _READ_FILE | _WRITE_FILE | _EXECUTE
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(_PathRule(access, opened)), 0)
    finally:
        os.close(opened)
