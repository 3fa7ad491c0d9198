"""The folder of one cluster: what lies where in it, and whose it is."""

from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import Refusal
from toolkit.places import cache_root

SOURCES = Path(__file__).resolve().parent

FULL = "full"
CONTROL_PLANE_ONLY = "control-plane-only"

# A Unix socket's path may hold 107 bytes, and containerd adds to ours.
LONGEST_STATE_PATH = 70


@dataclass(frozen=True)
class State:
    """The folder of one cluster. `down` removes it."""

    root: Path

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Pid files and sockets."""
        return self.root / "run"

    @property
    def config(self) -> Path:
        """Configuration files written for the components."""
        return self.root / "config"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, the one a user is given."""
        return self.root / "kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def lock(self) -> Path:
        """Lies next to the folder, so that removing the folder does not remove the lock under its holder."""
        return self.root.with_name(self.root.name + ".lock")

    @property
    def marker(self) -> Path:
        """Names the mode of the cluster, and tells a state folder from any other folder of the user's."""
        return self.root / "learnloop-cluster"

    def mode(self) -> str | None:
        """FULL or CONTROL_PLANE_ONLY, or None where no cluster was ever made."""
        return self.marker.read_text() if self.marker.exists() else None

    def require_free_for(self, mode: str) -> None:
        """Raise Refusal when the folder belongs to somebody else or to a cluster of the other mode."""
        present = self.mode()
        if present not in (None, mode):
            raise Refusal(f"{self.root} holds a {present} cluster. Remove it with `down`, or choose another --state.")
        if present is None and self.root.exists() and any(self.root.iterdir()):
            raise Refusal(f"{self.root} is not empty and holds no cluster. Choose an empty folder with --state.")

    def make_folders(self, mode: str) -> None:
        """Create the folders that every mode needs."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.marker.write_text(mode)
        for folder in (self.logs, self.run, self.config, self.bin):
            folder.mkdir(exist_ok=True)


def default_state(control_plane_only: bool) -> State:
    """The state folder used when the user names none."""
    return State(cache_root() / ("control-plane" if control_plane_only else "cluster"))
