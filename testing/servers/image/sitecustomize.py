"""On the service's PYTHONPATH: what is installed here for other parts, and not in the memory image, is not found.

Libraries look for optional companions (nats-py for aiohttp, httpx for rich) and load them wherever they are: 11 MiB
that the image does without. `testing.servers.data_plane_process` names them in BENCH_ABSENT.
"""

import importlib.abc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

ABSENT = frozenset(os.environ.get("BENCH_ABSENT", "").split())


class _Absent(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raises ModuleNotFoundError for what the image does not have; None for all else."""
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r} in the memory image", name=name)
        return None


sys.meta_path.insert(0, _Absent())
