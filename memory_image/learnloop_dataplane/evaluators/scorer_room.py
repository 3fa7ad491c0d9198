"""How much memory reward models may have: what the container's limit leaves beside the data plane itself."""

import os
from pathlib import Path

ROOT = Path("/")
KEPT_SHARE = 8
"""One part in so many of the limit stays free: the data plane's own memory comes and goes."""
SMALLEST = 160 * 2**20
"""Bytes of a process beside its weights: Python with onnxruntime and tokenizers writes to 67 MiB before any model, the
rest is for what a model computes on the way."""
TIMES = 5
"""A model's file in memory: three times were measured (read, parsed, the weights), the rest is for what it computes."""


def needed(model_bytes: int) -> int:
    """Bytes that the process of a model of this size may write to."""
    return SMALLEST + TIMES * model_bytes


def left() -> int:
    """Bytes for the processes of all reward models together, at this moment."""
    limit = memory_limit()
    return limit - limit // KEPT_SHARE - _resident()


def memory_limit(root: Path = ROOT) -> int:
    """Bytes that this container may have, by control groups of either version; without a limit: the machine's."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if not controllers:
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # A container may see its own group as the top, or the machine's tree; each group above bounds it, too.
        group = top / path.strip("/")
        for folder in (top, *(one for one in (group, *group.parents) if top in one.parents)):
            value = _text(folder / name).strip()
            if value.isdecimal():
                found.append(int(value))
    return min(found)


def _resident() -> int:
    pages = _text(Path("/proc/self/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
