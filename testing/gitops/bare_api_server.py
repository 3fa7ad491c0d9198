"""A kube-apiserver that knows nothing of learnloop yet."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLUSTER = [sys.executable, str(Path(__file__).resolve().parents[2] / "hack" / "cluster")]


@contextmanager
def bare_api_server(folder: Path) -> Iterator[Path]:
    """Its kubeconfig, for the time of the block; kubectl lies next to it in `bin`.

    Raises:
        AssertionError: it does not start; carries what hack/cluster said.
    """
    where = ["--control-plane-only", "--state", str(folder)]
    started = subprocess.run([*CLUSTER, "up", *where], capture_output=True, text=True, check=False)
    try:
        assert started.returncode == 0, started.stderr
        yield Path(started.stdout.strip().splitlines()[-1])
    finally:
        subprocess.run([*CLUSTER, "down", *where], capture_output=True, check=False)
