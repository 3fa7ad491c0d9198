"""Confines a process before it runs untrusted code. Linux; the standard library alone.

The pod has no token, no network and a read-only root. This is a second wall, for clusters whose
network ignores NetworkPolicies.
"""

import ctypes
import os
import platform
import resource
import struct
from typing import Final

SYSCALLS: Final = {
    # socket, io_uring_setup, ptrace, process_vm_readv, process_vm_writev, unshare, pidfd_getfd
    "x86_64": (0xC000003E, (41, 425, 101, 310, 311, 272, 438)),
    "aarch64": (0xC00000B7, (198, 425, 117, 270, 271, 97, 438)),
}
"""Audit architecture and refused calls, by machine (linux/audit.h, asm/unistd.h)."""
X32 = 0x40000000
PROCESSES, FILES, WRITTEN_BYTES = 16, 64, 2**20
_NO_NEW_PRIVILEGES, _SECCOMP = 38, 22
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # SECCOMP_RET_ALLOW, ERRNO with EPERM, KILL_PROCESS


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def confine(seconds: int, memory_bytes: int) -> None:
    """Limits of processor time, memory, processes, open files and file sizes; no sockets, no looking into others.

    Raises:
        OSError: the kernel refuses, or knows no filter for this machine.
    """
    limits = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_DATA: memory_bytes,
        resource.RLIMIT_NPROC: PROCESSES,
        resource.RLIMIT_NOFILE: FILES,
        resource.RLIMIT_FSIZE: WRITTEN_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for which, most in limits.items():
        resource.setrlimit(which, (most, most))
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _filter()


def _filter() -> None:
    """Seccomp's filter (kernel documentation, seccomp_filter): refused calls fail with EPERM."""
    supported = SYSCALLS.get(platform.machine())
    if supported is None:
        raise OSError(f"no filter of system calls for {platform.machine()}; run on {' or '.join(SYSCALLS)}")
    architecture, refused = supported
    rows = [
        (_LOAD, 0, 0, 4),  # seccomp_data.arch
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # seccomp_data.nr
        (_AT_LEAST, 0, 1, X32),
        (_RETURN, 0, 0, _KILL),
        *((_EQUAL, len(refused) - index, 0, number) for index, number in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    program = _Program(len(rows), ctypes.cast(code, ctypes.c_void_p))
    _prctl(_SECCOMP, 2, ctypes.byref(program))


def _prctl(option: int, *values: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [value if not isinstance(value, int) else ctypes.c_ulong(value) for value in values]
    padded += [ctypes.c_ulong(0)] * (4 - len(values))
    if libc.prctl(option, *padded):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
