"""What this process uses of what it may use: processors, memory, GPU."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")


class ProcessFigures:
    """Shares from 0 to 1, over the time since the last look.

    Args:
        cpus: processors that the cgroup allows.
        root: stands for `/` in tests.
    """

    def __init__(
        self,
        cpus: float,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._cpus, self._root, self._clock, self._processor = cpus, root, clock, processor
        self._at, self._used = clock(), processor()

    def look(self) -> dict[str, float]:
        """Figures as `learnloop_api.wire.training` names them; those that cannot be read are left out."""
        now, used = self._clock(), self._processor()
        found: dict[str, float] = {}
        if now - self._at > 0.01:
            cpus = self._cpus if math.isfinite(self._cpus) else float(os.cpu_count() or 1)
            found["cpu_utilization"] = min(1.0, (used - self._used) / (now - self._at) / cpus)
            self._at, self._used = now, used
        resident = self._resident()
        if resident:
            found["memory_bytes"] = resident
            found["memory_utilization"] = min(1.0, resident / self._limit())
        return found | _gpu()

    def _resident(self) -> float:
        try:
            return float((self._root / "proc/self/statm").read_text().split()[1]) * PAGE
        except (OSError, ValueError, IndexError):
            return 0.0

    def _limit(self) -> float:
        """Bytes the cgroup allows, or the machine's where it allows more."""
        whole = float(os.sysconf("SC_PHYS_PAGES")) * PAGE
        for path in _LIMITS:
            try:
                return min(whole, float((self._root / path).read_text()))
            except (OSError, ValueError):  # no such group, or "max"
                continue
        return whole


def _gpu() -> dict[str, float]:
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    held = float(torch.cuda.memory_reserved())
    found = {"gpu_memory_bytes": held, "gpu_memory_utilization": (total - free) / total}
    try:
        found["gpu_utilization"] = torch.cuda.utilization() / 100.0
    except Exception:  # the library that tells it is no part of torch; without it the figure is left out
        return found
    return found
