"""Everything that can be known to fail before anything is started, said with what to do about it."""

import errno
import os
import shutil
import socket
import sys
from pathlib import Path

from cluster.addons import standard
from cluster.addresses import BRIDGE_ADDRESS
from cluster.node import components
from cluster.processes import OWNER_MARK, Processes
from cluster.state_folder import LONGEST_STATE_PATH, State
from go_programs import go_build
from toolkit.errors import Refusal
from toolkit.places import cache_root

GIBIBYTE = 1024**3
GO_BUILD_GIBIBYTES = 8
IMAGES_GIBIBYTES = 12
RUNNING_GIBIBYTES = 2

# Owner, by the name of its process → where it listens.
FULL_PORTS = {
    "etcd": (components.LOOPBACK, 2379),
    "etcd peers": (components.LOOPBACK, 2380),
    "kube-apiserver": (BRIDGE_ADDRESS, 6443),
    standard.DNS: (BRIDGE_ADDRESS, 53),
    components.KUBELET: (BRIDGE_ADDRESS, components.PORTS[components.KUBELET]),
    **{owner: (components.LOOPBACK, port) for owner, port in components.PORTS.items() if owner != components.KUBELET},
}


def light(state: State) -> None:
    """Checks the needs of the control-plane-only mode. Raises Refusal."""
    _linux()
    built = all((go_build.KUBE.cache() / name).exists() for name in ("etcd", "kube-apiserver"))
    disk(state.root, RUNNING_GIBIBYTES if built else RUNNING_GIBIBYTES + GO_BUILD_GIBIBYTES)


def full(state: State, processes: Processes) -> None:
    """Checks the needs of the full cluster. Raises Refusal."""
    _linux()
    _root()
    _one_per_machine(state)
    built = all((go_build.KUBE.cache() / name).exists() for name in go_build.KUBE.programs)
    disk(state.root, IMAGES_GIBIBYTES if built else IMAGES_GIBIBYTES + GO_BUILD_GIBIBYTES)
    for owner, (host, port) in FULL_PORTS.items():
        if processes.pid(owner.split()[0]) is None:
            _port_free(owner, host, port)


def _root() -> None:
    if os.geteuid() != 0:
        raise Refusal(
            "A node makes network interfaces, mounts and control groups, and needs root for that. Run it with sudo, or "
            "use `up --control-plane-only`, which needs no root, or your own cluster: `CONTEXT=<context> make demo`."
        )


def _one_per_machine(state: State) -> None:
    """Bridge, firewall chains and the ports of a node exist once for each machine."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program = (process / "exe").readlink().name
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        ours = f"{OWNER_MARK}={state.root}:".encode() in environment
        if program.removesuffix(" (deleted)") == "kubelet" and not ours and _same_network(process):
            raise Refusal(
                f"Another kubelet runs on this machine (pid {process.name}), and two would share firewall chains and "
                "control groups. Stop it, or use its cluster: `CONTEXT=<kubeconfig context> make demo`."
            )


def _same_network(process: Path) -> bool:
    """A kubelet inside a container, such as kind's, has a network of its own and is out of the way."""
    try:
        return (process / "ns" / "net").readlink() == Path("/proc/self/ns/net").readlink()
    except OSError:
        return False


def _port_free(owner: str, host: str, port: int) -> None:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:  # the bridge is not there yet, and so it is free
            return
        raise Refusal(
            f"Port {port} on {host}, which {owner} needs, is taken. Find who holds it with "
            f"`ss -ltnp 'sport = :{port}'` and stop it."
        ) from error


def _linux() -> None:
    if not sys.platform.startswith("linux"):
        raise Refusal(
            f"A Kubernetes node needs Linux; this is {sys.platform}. Use a Linux machine or virtual machine, or "
            "your own cluster: `CONTEXT=<kubeconfig context> make demo`."
        )


def state_path(state: State) -> None:
    """Raise Refusal when sockets inside the folder would have too long a path."""
    if len(str(state.root)) > LONGEST_STATE_PATH:
        raise Refusal(
            f"The state folder's path has {len(str(state.root))} characters, and Unix sockets inside it allow "
            f"{LONGEST_STATE_PATH}: {state.root}. Choose a shorter one with --state or XDG_CACHE_HOME."
        )


def disk(folder: Path, gibibytes: int) -> None:
    """Raise Refusal when less is free. The nearest existing parents are asked: the folders may not exist yet."""
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
