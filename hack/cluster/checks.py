"""Everything that can be known to fail before anything is started, said with what to do about it."""

import shutil
import sys
from pathlib import Path

from cluster import binaries
from cluster.errors import Refusal
from cluster.layout import LONGEST_STATE_PATH, State, cache_root

GIBIBYTE = 1024**3
GO_BUILD_GIBIBYTES = 8
IMAGES_GIBIBYTES = 12
RUNNING_GIBIBYTES = 2


def light(state: State) -> None:
    """What the control-plane-only mode asks for. Raises Refusal."""
    _linux()
    _state_path(state)
    built = all((binaries.KUBE.cache() / name).exists() for name in ("etcd", "kube-apiserver"))
    _disk(state.root, RUNNING_GIBIBYTES if built else RUNNING_GIBIBYTES + GO_BUILD_GIBIBYTES)


def _linux() -> None:
    if not sys.platform.startswith("linux"):
        raise Refusal(
            f"A Kubernetes node needs Linux; this is {sys.platform}. Use a Linux machine or virtual machine, or "
            "your own cluster: `CONTEXT=<kubeconfig context> make demo`."
        )


def _state_path(state: State) -> None:
    if len(str(state.root)) > LONGEST_STATE_PATH:
        raise Refusal(
            f"The state folder's path has {len(str(state.root))} characters, and Unix sockets inside it allow "
            f"{LONGEST_STATE_PATH}: {state.root}. Choose a shorter one with --state or XDG_CACHE_HOME."
        )


def _disk(folder: Path, gibibytes: int) -> None:
    """The nearest existing parents are asked: the folders themselves may not exist yet."""
    for place in {_existing(folder), _existing(cache_root())}:
        free = shutil.disk_usage(place).free
        if free < gibibytes * GIBIBYTE:
            raise Refusal(
                f"{free / GIBIBYTE:.1f} GiB are free on the disk of {place}, and {gibibytes} GiB are needed. "
                "Free some, or set XDG_CACHE_HOME to a folder on a larger disk."
            )


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
