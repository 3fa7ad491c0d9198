"""The container runtime: its configuration, and the images it holds."""

from collections.abc import Iterable
from pathlib import Path

from cluster.node.oci_archive import Archive, write
from cluster.processes import Daemon
from cluster.state_folder import State
from toolkit.commands import CommandFailed, feed, run
from toolkit.debian_packages import CNI_PLUGINS, locate
from toolkit.errors import Refusal
from toolkit.places import cache_root

NAMESPACE = "k8s.io"
PAUSE_IMAGE = "localhost/learnloop/pause:local"

CONFIG = """\
version = 2
root = "{images}"
state = "{run}/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without it no container starts where the capability to lower the score is missing.
  restrict_oom_score_adj = true
  # Below the state folder they are found again, and removed, by the cleanup.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runc}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{config}/cni"
"""


def image_store() -> Path:
    """containerd's data. It outlives the cluster, so that the next one need not import its images again."""
    return cache_root() / "containerd"


def daemon(state: State) -> Daemon:
    """Write the configuration and describe the process.

    Raises Refusal when containerd or runc is missing.
    """
    program, runc = locate("containerd"), locate("runc")
    if program is None or runc is None:
        raise Refusal("containerd and runc are needed. Install them (Debian: apt-get install containerd runc).")
    path = state.config / "containerd.toml"
    path.write_text(
        CONFIG.format(
            images=image_store(),
            run=state.run,
            socket=state.containerd_socket,
            root=state.root,
            pause=PAUSE_IMAGE,
            runc=runc,
            plugins=CNI_PLUGINS,
            config=state.config,
        )
    )
    return Daemon("containerd", [program, "--config", path], inputs=[path])


class Client:
    """Questions to a running containerd, through its own `ctr`."""

    def __init__(self, state: State) -> None:
        self._base = ["ctr", "--address", str(state.containerd_socket), "--namespace", NAMESPACE]

    def call(self, *arguments: str) -> str:
        """Run one `ctr` command. Raises CommandFailed."""
        return run([*self._base, *arguments])

    def answers(self) -> bool:
        """Whether containerd serves."""
        try:
            self.call("version")
        except CommandFailed:
            return False
        return True

    def images(self) -> dict[str, str]:
        """Name → digest of the images it holds."""
        rows = (line.split() for line in self.call("images", "ls").splitlines()[1:])
        return {row[0]: row[2] for row in rows}

    def blobs(self) -> set[str]:
        """The digests in its content store."""
        return set(self.call("content", "ls", "--quiet").split())

    def load(self, archive: Archive | Path) -> None:
        """Import an image, or an OCI or Docker archive file. Raises CommandFailed."""
        if isinstance(archive, Path):
            self.call("images", "import", str(archive))
            return
        feed([*self._base, "images", "import", "-"], lambda stream: write(archive, stream))

    def remove_containers(self) -> list[str]:
        """End and forget every container, pods' sandboxes included. Returns their ids."""
        for task in self.call("tasks", "ls", "--quiet").split():
            self._attempt([("tasks", "kill", "--signal", "9", task), ("tasks", "rm", "--force", task)])
        containers = self.call("containers", "ls", "--quiet").split()
        for container in containers:
            self._attempt([("containers", "rm", container)])
        return containers

    def _attempt(self, commands: Iterable[tuple[str, ...]]) -> None:
        """Each of them, whether or not the one before worked: what is gone already need not be ended."""
        for command in commands:
            try:
                self.call(*command)
            except CommandFailed:
                continue
