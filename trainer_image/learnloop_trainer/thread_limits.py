"""How many threads this pod may use, decided before numpy and torch are imported.

BLAS libraries start one thread per core of the *node*; in a pod limited to two CPUs of a 64-core node that costs
a factor of two to six. The kernel's CPU quota (cgroup v1 or v2) is the truth.
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


def _quota_v2(directory: Path) -> float:
    quota, _, period = _read(directory / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else math.inf


def _quota_v1(directory: Path) -> float:
    quota, period = _read(directory / "cpu.cfs_quota_us"), _read(directory / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else math.inf


def cpu_quota(root: Path = Path("/")) -> float:
    """CPUs the cgroup allows, the tightest of the whole hierarchy; infinity without a limit.

    `root` stands for `/` in tests. Source: Linux Documentation/admin-guide/cgroup-v2.rst (cpu.max) and
    scheduler/sched-bwc.rst (cpu.cfs_quota_us).
    """
    mounts = root / "sys/fs/cgroup"
    best = min(_quota_v2(mounts), _quota_v1(mounts / "cpu"), _quota_v1(mounts / "cpu,cpuacct"))
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            best = min([best, *map(_quota_v2, _ancestors(mounts, group))])
        elif "cpu" in controllers.split(","):
            best = min([best, *map(_quota_v1, _ancestors(mounts / controllers, group))])
    return best


def budget(widest_layer: int, quota: float, cores: int) -> int:
    """Threads for one rank: one for small networks, else whole CPUs of the quota, never more."""
    allowed = max(1, math.floor(min(quota, cores)))
    return 1 if widest_layer <= SMALL_LAYER else allowed


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
