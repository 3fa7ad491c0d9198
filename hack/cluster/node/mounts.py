"""Mounts and control groups that outlive the processes they were made for."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from cluster.node.containerd import image_store
from cluster.processes import Processes
from cluster.state_folder import State
from toolkit.commands import succeeds

CGROUPS = Path("/sys/fs/cgroup")
POD_GROUP = "kubepods"


def below(folders: Iterable[Path]) -> list[str]:
    """Mount points inside the folders, the deepest first."""
    prefixes = tuple(f"{folder}/" for folder in folders)
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(prefixes)), reverse=True)


def unmount_below(*folders: Path) -> None:
    """Unmount everything inside the folders, also what is still in use."""
    for point in below(folders):
        succeeds(["umount", "--lazy", point])


def forget_dead_runtime(state: State, processes: Processes) -> None:
    """Before a start: remove what a containerd and its shims left when the machine, or all of them, went down.

    Containers that still run are left alone: a new containerd takes them over.
    """
    if processes.descendants():
        return
    unmount_below(state.run, image_store())
    shutil.rmtree(state.run / "containerd", ignore_errors=True)


def remove_pod_groups() -> None:
    """Remove the empty control groups of pods; the kernel refuses to remove any other."""
    for root in (*CGROUPS.glob(f"*/{POD_GROUP}"), CGROUPS / POD_GROUP):
        folders = [path for path in root.rglob("*") if path.is_dir()] if root.is_dir() else []
        for folder in sorted([*folders, root], key=lambda path: len(path.parts), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                continue
