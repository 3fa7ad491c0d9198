"""A private etcd and kube-apiserver with learnloop's CRDs in it, for as long as a benchmark lasts.

Everybody comes with a ServiceAccount's token, as in a cluster. The API server remembers a token for ten seconds, and
verifies a client certificate again for each request, which takes a fifteenth of all its time in a burst.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ACCOUNT = "bench"
TOKEN_SECONDS = 6 * 3600
CLUSTER = [sys.executable, str(REPOSITORY / "hack" / "cluster")]


@contextmanager
def control_plane() -> Iterator[Path]:
    """Yields the kubeconfig; everything is stopped and removed at the end.

    Raises:
        RuntimeError: it did not start; carries what it printed.
    """
    with tempfile.TemporaryDirectory(prefix="learnloop-bench-") as folder:
        arguments = ["--control-plane-only", "--state", folder]
        try:
            yield _ready(_run([*CLUSTER, "up", *arguments]).strip().splitlines()[-1])
        finally:
            subprocess.run([*CLUSTER, "down", *arguments], capture_output=True, check=False)


def _ready(kubeconfig: str) -> Path:
    kubectl = [str(Path(kubeconfig).parent / "bin" / "kubectl"), "--kubeconfig", kubeconfig]
    _run([*kubectl, "apply", "--server-side", "-f", str(REPOSITORY / "crds")])
    _run([*kubectl, "wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"])
    _log_in(kubectl)
    return Path(kubeconfig)


def _log_in(kubectl: list[str]) -> None:
    """Lead the kubeconfig's current context to a ServiceAccount that may do everything."""
    _run([*kubectl, "create", "serviceaccount", ACCOUNT])
    role = [f"--serviceaccount=default:{ACCOUNT}", "--clusterrole=cluster-admin"]
    _run([*kubectl, "create", "clusterrolebinding", ACCOUNT, *role])
    token = _run([*kubectl, "create", "token", ACCOUNT, f"--duration={TOKEN_SECONDS}s"]).strip()
    _run([*kubectl, "config", "set-credentials", ACCOUNT, f"--token={token}"])
    _run([*kubectl, "config", "set-context", "--current", f"--user={ACCOUNT}"])


def version(kubeconfig: Path) -> str:
    """The API server's gitVersion."""
    kubectl = [str(kubeconfig.parent / "bin" / "kubectl"), "--kubeconfig", str(kubeconfig)]
    return str(json.loads(_run([*kubectl, "version", "-o", "json"]))["serverVersion"]["gitVersion"])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout
