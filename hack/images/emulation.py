"""Architectures of images, and programs of another one: QEMU, known to the kernel while the block runs."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from toolkit.commands import CommandFailed, run
from toolkit.debian_packages import unpacked
from toolkit.errors import Refusal

PROCESSORS = {"amd64": "x86_64", "arm64": "aarch64"}
"""An image's word → the kernel's and QEMU's."""
BINFMT = Path("/proc/sys/fs/binfmt_misc")
PACKAGE = "qemu-user-static"
# QEMU's default processor signs pointers where a program asks for it, as Debian's do: 25 times the time of all else.
VARIABLES = {"arm64": {"QEMU_CPU": "cortex-a72"}}


def own() -> str:
    """This machine's architecture."""
    return next((name for name, processor in PROCESSORS.items() if processor == platform.machine()), "amd64")


def variables(architecture: str) -> Mapping[str, str]:
    """For the emulator, while it builds."""
    return {} if architecture == own() else VARIABLES.get(architecture, {})


def suffix(architecture: str) -> str:
    """Of the names of what is made for it; empty for this machine's own."""
    return "" if architecture == own() else f"-{architecture}"


@contextmanager
def of(architecture: str) -> Iterator[None]:
    """Programs of the architecture run in the block, in a chroot too.

    Raises Refusal where the kernel takes no emulator, or Debian's is not to be had.
    """
    if architecture == own():
        yield
        return
    # A name of its own: what one run registers, another one must not remove.
    handler = BINFMT / f"learnloop-{architecture}-{os.getpid()}"
    try:
        if not (BINFMT / "register").exists():
            run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT])
        (BINFMT / "register").write_bytes(_rule(handler.name, PROCESSORS[architecture]))
    except (CommandFailed, OSError) as error:
        raise Refusal(f"{architecture} cannot be emulated here, which takes root and binfmt_misc: {error}") from error
    try:
        yield
    finally:
        handler.write_text("-1")


def _rule(name: str, processor: str) -> bytes:
    """The package's own rule, which has the emulator opened now (F), for no chroot has it."""
    _, _, rest = unpacked(PACKAGE, f"usr/lib/binfmt.d/qemu-{processor}.conf").read_text().strip().split(":", 2)
    rest, _, flags = rest.rpartition(":")
    rest = rest.rpartition(":")[0]
    emulator = unpacked(PACKAGE, f"usr/libexec/qemu-binfmt/{processor}-binfmt-P")
    return f":{name}:{rest}:{emulator}:{flags}".encode()
