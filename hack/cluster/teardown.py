"""Taking the full cluster apart, whatever state it is in."""

import shutil
from contextlib import suppress
from pathlib import Path

from cluster.addons import standard
from cluster.control_plane import servers
from cluster.node import components, containerd, mounts, network
from cluster.processes import Processes
from cluster.state_folder import State
from toolkit.commands import CommandFailed
from toolkit.errors import Refusal
from toolkit.progress import say, step, wait_until

POD_LOG_LINKS = Path("/var/log/containers")
KUBELET_FOLDERS = (Path("/var/lib/kubelet/device-plugins"), Path("/var/lib/kubelet"))
CONTAINERD_SECONDS = 15.0


def down(state: State, purge: bool) -> None:
    """End the cluster and remove its processes, mounts, bridge, firewall chains, control groups and folder.

    What stays is the cache: programs and, unless `purge` is set, containerd's images.
    """
    halt(state)
    with step(f"removing {state.root}"):
        shutil.rmtree(state.root, ignore_errors=True)
        if purge:
            shutil.rmtree(containerd.image_store(), ignore_errors=True)


def halt(state: State) -> None:
    """End the cluster's processes and remove what they made outside the folder; logs and data stay in it."""
    processes = Processes(state)
    with step("stopping the node"):
        # The kubelet first: it would start again what is ended under it.
        controllers = (components.PROXY, components.SCHEDULER, components.CONTROLLER_MANAGER)
        for name in (components.KUBELET, *standard.PROGRAMS, *controllers):
            processes.stop(name, grace_seconds=3)
        containers = _remove_containers(state, processes)
        processes.stop("containerd")
    with step("stopping the control plane"):
        servers.stop(processes)
        processes.stop_descendants()
    with step("removing mounts and network"):
        mounts.unmount_below(state.root, containerd.image_store())
        network.remove(containers)
        mounts.remove_pod_groups()
        _remove_kubelet_leftovers()


def _remove_containers(state: State, processes: Processes) -> list[str]:
    """containerd's own list is what tells which containers there are, so it is started if it is down."""
    client = containerd.Client(state)
    try:
        mounts.forget_dead_runtime(state, processes)
        processes.ensure(containerd.daemon(state))
        wait_until("containerd", client.answers, CONTAINERD_SECONDS)
        return client.remove_containers()
    except (CommandFailed, Refusal, TimeoutError) as error:
        say(f"containerd does not help ({error}); its images are removed with its containers")
        processes.stop("containerd")
        processes.stop_descendants()
        mounts.unmount_below(state.root, containerd.image_store())
        shutil.rmtree(containerd.image_store(), ignore_errors=True)
        return []


def _remove_kubelet_leftovers() -> None:
    """The kubelet links every container's log from a fixed folder, and makes another whatever its root is."""
    for link in POD_LOG_LINKS.glob("*.log"):
        if link.is_symlink() and not link.exists():
            link.unlink()
    (KUBELET_FOLDERS[0] / "kubelet.sock").unlink(missing_ok=True)  # stays behind when a kubelet is killed
    for folder in (POD_LOG_LINKS, *KUBELET_FOLDERS):
        with suppress(OSError):  # it is somebody else's if it is not empty
            folder.rmdir()
