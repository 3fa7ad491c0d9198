"""An API server of one's own, with learnloop's CRDs in it, for as long as a block of code runs."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = [sys.executable, str(REPOSITORY / "hack" / "cluster")]


@contextmanager
def api_server() -> Iterator[Path]:
    """Its kubeconfig. Raises CalledProcessError where it cannot run; what it says goes to standard error."""
    with tempfile.TemporaryDirectory(prefix="learnloop-api-") as folder:
        where = ["--control-plane-only", "--state", folder]
        try:
            done = subprocess.run([*CLUSTER, "up", *where], stdout=subprocess.PIPE, text=True, check=True)
            kubeconfig = Path(done.stdout.strip().splitlines()[-1])
            kubectl = [str(kubeconfig.parent / "bin" / "kubectl"), "--kubeconfig", str(kubeconfig)]
            crds = str(REPOSITORY / "crds")
            subprocess.run([*kubectl, "apply", "--server-side", "-f", crds], stdout=subprocess.DEVNULL, check=True)
            wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"]
            subprocess.run([*kubectl, *wait], stdout=subprocess.DEVNULL, check=True)
            yield kubeconfig
        finally:
            subprocess.run(
                [*CLUSTER, "down", *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
            )
