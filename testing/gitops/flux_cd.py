"""Flux: source-controller and kustomize-controller as processes of this machine, from their Go modules.

helm-controller is not to be had from the module proxy: what a HelmRelease installs, a test renders by helm itself.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from go_programs import go_build
from testing.gitops.engine import Engine, Sighting
from testing.servers.ports import held_port

VERSION = "v1.9.6"
"""Of both controllers: the newest whose dependencies the module proxy serves."""
SOURCE, KUSTOMIZE = "github.com/fluxcd/source-controller", "github.com/fluxcd/kustomize-controller"
FLUX = go_build.Module(
    "flux",
    {"source-controller": SOURCE, "kustomize-controller": KUSTOMIZE},
    go="1.27.3",
    sources=Path(__file__).parent,
)
NAMESPACE = "flux-system"
KUSTOMIZATIONS = {
    "group": "kustomize.toolkit.fluxcd.io",
    "version": "v1",
    "namespace": NAMESPACE,
    "plural": "kustomizations",
}
REPOSITORIES = {
    "group": "source.toolkit.fluxcd.io",
    "version": "v1",
    "namespace": NAMESPACE,
    "plural": "gitrepositories",
}


@dataclass(frozen=True)
class KustomizationSighting(Sighting):
    """The status of a Kustomization at one moment."""

    ready: str
    reason: str
    message: str
    applied: str
    """The revision of Git that it was at last."""


class Flux(Engine[KustomizationSighting]):
    """Flux, of which Kustomizations are watched."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__(kubeconfig, folder, KUSTOMIZATIONS)

    def install(self) -> None:
        """Its kinds, as released."""
        self.kubectl("create", "namespace", NAMESPACE)
        for package in (SOURCE, KUSTOMIZE):
            folder = go_build.module_folder(FLUX, package) / "config" / "crd" / "bases"
            self.kubectl("apply", "--server-side", "-f", str(folder))
        self.established(*(f"{kind['plural']}.{kind['group']}" for kind in (KUSTOMIZATIONS, REPOSITORIES)))

    def start(self) -> None:
        """Both controllers; they are stopped by `stop`."""
        programs = go_build.ensure(FLUX, FLUX.programs)
        storage = self._folder / "artifacts"
        storage.mkdir(parents=True)
        port = self._ports.enter_context(held_port())
        served = [f"--storage-path={storage}", f"--storage-addr=127.0.0.1:{port}"]
        self._start("source-controller", programs, *served, f"--storage-adv-addr=127.0.0.1:{port}")
        self._start("kustomize-controller", programs, "--no-remote-bases=true")
        self._watch()

    def apply(self, *objects: dict[str, Any]) -> None:
        """As `kubectl apply` does."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=document)

    def look(self, name: str, repository: str) -> None:
        """Look at Git now, as a webhook of the repository has it do, and then at the cluster."""
        body = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": str(time.time())}}}
        self._objects.patch_namespaced_custom_object(**REPOSITORIES, name=repository, body=body)
        self._objects.patch_namespaced_custom_object(**KUSTOMIZATIONS, name=name, body=body)

    def changes(self, name: str) -> list[tuple[str, dict[str, str]]]:
        """Each pass over the Kustomization: the revision, and object → created, configured or unchanged."""
        passes = list[tuple[str, dict[str, str]]]()
        for line in self.log("kustomize-controller").splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            if isinstance(entry.get("output"), dict) and (entry.get("Kustomization") or {}).get("name") == name:
                passes.append((entry["revision"], {str(key): str(value) for key, value in entry["output"].items()}))
        return passes

    def _start(self, name: str, programs: dict[str, Path], *arguments: str) -> None:
        metrics, health = (self._ports.enter_context(held_port()) for _ in range(2))
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._kubeconfig),
            "RUNTIME_NAMESPACE": NAMESPACE,
            "TMPDIR": str(self._folder),
        }
        ports = [f"--metrics-addr=127.0.0.1:{metrics}", f"--health-addr=127.0.0.1:{health}"]
        self._launch(name, [str(programs[name]), *ports, "--log-encoding=json", *arguments], environment)

    def _sighting(self, managed: dict[str, Any]) -> KustomizationSighting:
        status = managed.get("status") or {}
        ready: dict[str, Any] = next((item for item in status.get("conditions", ()) if item["type"] == "Ready"), {})
        return KustomizationSighting(
            time.monotonic(),
            ready.get("status", ""),
            ready.get("reason", ""),
            ready.get("message", ""),
            status.get("lastAppliedRevision", ""),
        )

    def _story(self, name: str) -> str:
        story = "\n".join(map(str, self.sightings.get(name, ())))
        logs = "\n".join(self.log(program)[-2000:] for program in self._processes)
        return f"\n{story[-3000:]}\n{logs}"


@contextmanager
def flux(kubeconfig: Path, folder: Path) -> Iterator[Flux]:
    """Installed and running for as long as the block."""
    made = Flux(kubeconfig, folder)
    try:
        made.install()
        made.start()
        yield made
    finally:
        made.stop()
