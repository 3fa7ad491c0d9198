"""Argo CD: application-controller, repo-server and redis as processes of this machine, as its own `Procfile` runs them.

The user interface's server is left out: whatever it does for a sync or a health check, the controller does.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from go_programs import go_build
from testing.gitops.engine import Engine, Sighting
from testing.servers.ports import held_port
from toolkit import debian_packages

VERSION = "v3.6.1"
PACKAGE = "github.com/argoproj/argo-cd/v3"
NAMESPACE = "argocd"
GROUP = {"group": "argoproj.io", "version": "v1alpha1", "namespace": NAMESPACE, "plural": "applications"}

ARGO_CD = go_build.Module("argocd", {"cmd": f"{PACKAGE}/cmd"}, go="1.27.3", sources=Path(__file__).parent)


def program() -> Path:
    """The one program of Argo CD, built once for each go.mod and go.sum; ten minutes of a processor."""
    return go_build.ensure(ARGO_CD, ARGO_CD.programs)["cmd"]


def sources() -> Path:
    """Its manifests and scripts."""
    return go_build.module_folder(ARGO_CD, PACKAGE)


@dataclass(frozen=True)
class ApplicationSighting(Sighting):
    """The status of an Application at one moment."""

    sync: str
    health: str
    revision: str
    operation: str


class ArgoCD(Engine[ApplicationSighting]):
    """Argo CD, of which Applications are watched."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__(kubeconfig, folder, GROUP)

    def install(self, patch: Path) -> None:
        """Its kinds and settings as released, and our patch of its ConfigMap as charts/argocd/README.md has it."""
        manifests = sources() / "manifests"
        self.kubectl("create", "namespace", NAMESPACE)
        self.kubectl("apply", "--server-side", "-k", str(manifests / "crds"))
        self.established("applications.argoproj.io", "appprojects.argoproj.io")
        self.kubectl("apply", "-n", NAMESPACE, "-k", str(manifests / "base" / "config"))
        self.kubectl("-n", NAMESPACE, "patch", "configmap", "argocd-cm", "--patch-file", str(patch))
        # The server, which does not run here, would make both.
        key = f'{{"stringData": {{"server.secretkey": "{secrets.token_hex(16)}"}}}}'
        self.kubectl("-n", NAMESPACE, "patch", "secret", "argocd-secret", "-p", key)
        everything = [{"group": "*", "kind": "*"}]
        destinations = [{"server": "*", "namespace": "*"}]
        spec = {"sourceRepos": ["*"], "destinations": destinations, "clusterResourceWhitelist": everything}
        project = {"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": {"name": "default"}}
        self._objects.create_namespaced_custom_object(
            **{**GROUP, "plural": "appprojects"}, body={**project, "spec": spec}
        )

    def start(self) -> None:
        """All three; returns when the controller has been started. They are stopped by `stop`."""
        debian_packages.ensure({"redis-server": "redis-server"})
        redis, repositories, metrics, more_metrics = (self._ports.enter_context(held_port()) for _ in range(4))
        bin_folder = self._folder / "bin"
        bin_folder.mkdir(parents=True)
        for name in ("argocd", "argocd-repo-server", "argocd-application-controller"):
            (bin_folder / name).symlink_to(program())
        (bin_folder / "helm").symlink_to(go_build.ensure(go_build.KUBE, ["helm"])["helm"])
        wrapper = bin_folder / "git-verify-wrapper.sh"
        shutil.copyfile(sources() / "hack" / "git-verify-wrapper.sh", wrapper)
        wrapper.chmod(0o755)
        redis_server = debian_packages.locate("redis-server") or "redis-server"
        self._start(redis_server, "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        self._start(
            "argocd-repo-server",
            "--address=127.0.0.1",
            f"--port={repositories}",
            "--metrics-address=127.0.0.1",
            f"--metrics-port={metrics}",
            f"--redis=127.0.0.1:{redis}",
            "--disable-tls",
            "--client-ca-path=",  # its default is refused together with --disable-tls
        )
        self._start(
            "argocd-application-controller",
            f"--kubeconfig={self._kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--redis=127.0.0.1:{redis}",
            f"--repo-server=127.0.0.1:{repositories}",
            "--repo-server-plaintext",
            f"--metrics-port={more_metrics}",
        )
        self._watch()

    def apply(self, application: dict[str, Any]) -> None:
        """Create an Application."""
        self._objects.create_namespaced_custom_object(**GROUP, body=application)

    def refresh(self, name: str) -> None:
        """Look at Git now, as a webhook of the repository has it do."""
        body = {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}}
        self._objects.patch_namespaced_custom_object(**GROUP, name=name, body=body)

    def after(self, name: str, moment: float) -> list[ApplicationSighting]:
        """Sightings of the Application since then."""
        return [sighting for sighting in self.sightings.get(name, ()) if sighting.at >= moment]

    def _story(self, name: str) -> str:
        application = self._objects.get_namespaced_custom_object(**GROUP, name=name)
        status = application.get("status") or {}
        resources = [
            (item["kind"], item["name"], item.get("status"), item.get("health"))
            for item in status.get("resources", ())
            if item.get("status") != "Synced"
        ]
        log = self.log("argocd-application-controller")[-3000:]
        fields = {key: status.get(key) for key in ("sync", "health", "conditions", "operationState")}
        return f"{str(fields)[:3000]}\nnot synced: {resources}\n{log}"

    def _start(self, name: str, *arguments: str) -> None:
        own = self._folder / "data"
        environment = {
            **os.environ,
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._kubeconfig),
            "HOSTNAME": "argocd-application-controller-0",
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_BINARY_NAME": Path(name).name,
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_TLS_DATA_PATH": str(own / "tls"),
            "ARGOCD_SSH_DATA_PATH": str(own / "ssh"),
            "ARGOCD_GPG_DATA_PATH": str(own / "gpg"),
            "ARGOCD_PLUGINSOCKFILEPATH": str(own / "plugins"),
            "TMPDIR": str(own / "tmp"),
        }
        for folder in ("tls", "ssh", "gpg", "plugins", "tmp"):
            (own / folder).mkdir(parents=True, exist_ok=True)
        path = self._folder / "bin" / name
        self._launch(Path(name).name, [str(path) if path.exists() else name, *arguments], environment)

    def _sighting(self, managed: dict[str, Any]) -> ApplicationSighting:
        status = managed.get("status") or {}
        sync = status.get("sync") or {}
        return ApplicationSighting(
            time.monotonic(),
            sync.get("status", ""),
            (status.get("health") or {}).get("status", ""),
            sync.get("revision", ""),
            (status.get("operationState") or {}).get("phase", ""),
        )


@contextmanager
def argo_cd(kubeconfig: Path, folder: Path, patch: Path) -> Iterator[ArgoCD]:
    """Installed and running for as long as the block."""
    made = ArgoCD(kubeconfig, folder)
    try:
        made.install(patch)
        made.start()
        yield made
    finally:
        made.stop()
