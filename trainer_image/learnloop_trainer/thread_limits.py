"""How many threads this pod may use, decided before numpy and torch are imported.

BLAS libraries start one thread per core of the *node*; in a pod limited to two CPUs of a 64-core node that costs
a factor of two to six. The kernel's CPU quota (cgroup v2) is the truth.
"""

import math
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SMALL_LAYER = 256  # below this width a second thread costs more than it brings


def _ancestors(mount: Path, group: str) -> Iterator[Path]:
    """The group's directory and all its parents, as far as this container can see them."""
    relative = Path(group.lstrip("/"))
    for parent in (relative, *relative.parents):
        if ".." not in parent.parts:
            yield mount / parent


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _quota(directory: Path) -> float:
    quota, _, period = _read(directory / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else math.inf


def cpu_quota(root: Path = Path("/")) -> float:
    """CPUs the cgroup allows, the tightest of the whole hierarchy; infinity without a limit.

    `root` stands for `/` in tests. Source: Linux Documentation/admin-guide/cgroup-v2.rst (cpu.max).
    """
    mount = root / "sys/fs/cgroup"
    lines = [line.partition("::") for line in _read(root / "proc/self/cgroup").splitlines()]
    groups = [group for hierarchy, version_2, group in lines if hierarchy == "0" and version_2]
    return min(map(_quota, [mount, *(parent for group in groups for parent in _ancestors(mount, group))]))


def budget(widest_layer: int, quota: float, cores: int) -> int:
    """Threads for one rank: one for small networks, else whole CPUs of the quota, never more."""
    allowed = max(1, math.floor(min(quota, cores)))
    return 1 if widest_layer <= SMALL_LAYER else allowed


def bound(environ: MutableMapping[str, str]) -> None:
    """Set the variables of numpy's libraries, before the order says more: whole CPUs of the quota, never more.

    OMP_NUM_THREADS is left as it is: `limit` reads the user's wish there.
    """
    allowed = max(1, math.floor(min(cpu_quota(), len(os.sched_getaffinity(0)))))
    for name in VARIABLES[1:]:
        environ.setdefault(name, environ.get(VARIABLES[0]) or str(allowed))


def limit(widest_layer: int, environ: MutableMapping[str, str]) -> int:
    """Set the thread variables of the numeric libraries; a user's own lower setting is respected."""
    quota, cores = cpu_quota(), len(os.sched_getaffinity(0))
    threads = budget(widest_layer, quota, cores)
    allowed = max(1, math.floor(min(quota, cores)))
    wish = environ.get("OMP_NUM_THREADS", "")
    if wish.isdigit() and int(wish) > 0:
        threads = min(int(wish), allowed)
    for name in VARIABLES:
        environ[name] = str(threads)
    return threads
