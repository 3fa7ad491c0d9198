"""Flux: source-controller and kustomize-controller as processes of this machine, from their Go modules.

helm-controller is not to be had from the module proxy: what a HelmRelease installs, a test renders by helm itself.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

from go_programs import go_build
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
TICK = 0.1


@dataclass(frozen=True)
class Seen:
    """What a Kustomization's status said, and when (time.monotonic)."""

    at: float
    ready: str
    reason: str
    message: str
    applied: str
    """The revision of Git that it was at last."""


class Flux:
    """One that manages the cluster of `kubeconfig`. `seen`: each change of a Kustomization's status, in order."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._kubeconfig, self._folder = kubeconfig, folder
        self._objects = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.seen: dict[str, list[Seen]] = {}
        self._stopped, self._ports = False, ExitStack()

    def install(self) -> None:
        """Its kinds, as released."""
        self.kubectl("create", "namespace", NAMESPACE)
        for package in (SOURCE, KUSTOMIZE):
            folder = go_build.module_folder(FLUX, package) / "config" / "crd" / "bases"
            self.kubectl("apply", "--server-side", "-f", str(folder))
        for kind in (KUSTOMIZATIONS, REPOSITORIES):
            self.established(f"{kind['plural']}.{kind['group']}")

    def start(self) -> None:
        """Both controllers; they are stopped by `stop`."""
        programs = go_build.ensure(FLUX, FLUX.programs)
        storage = self._folder / "artifacts"
        storage.mkdir(parents=True)
        port = self._ports.enter_context(held_port())
        served = [f"--storage-path={storage}", f"--storage-addr=127.0.0.1:{port}"]
        self._start("source-controller", programs, *served, f"--storage-adv-addr=127.0.0.1:{port}")
        self._start("kustomize-controller", programs, "--no-remote-bases=true")
        threading.Thread(target=self._follow, daemon=True).start()

    def stop(self) -> None:
        """Both end."""
        self._stopped = True
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ports.close()

    def apply(self, *objects: dict[str, Any]) -> None:
        """As `kubectl apply` does."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=document)

    def look(self, name: str, repository: str) -> None:
        """Look at Git now, as a webhook of the repository has it do, and then at the cluster."""
        body = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": str(time.time())}}}
        self._objects.patch_namespaced_custom_object(**REPOSITORIES, name=repository, body=body)
        self._objects.patch_namespaced_custom_object(**KUSTOMIZATIONS, name=name, body=body)

    def until(self, name: str, what: str, wanted: Callable[[Seen], bool], seconds: float) -> Seen:
        """The first status of the Kustomization that is as wanted.

        Raises:
            AssertionError: there is none within `seconds`, or a controller ended; carries what was seen and the log.
        """
        deadline = time.monotonic() + seconds
        while True:
            for seen in list(self.seen.get(name, ())):
                if wanted(seen):
                    return seen
            for program, process in self._processes.items():
                assert process.poll() is None, f"{program} ended with {process.returncode}: {self.log(program)[-1500:]}"
            if time.monotonic() > deadline:
                story = "\n".join(map(str, self.seen.get(name, ())))
                logs = "\n".join(self.log(program)[-2000:] for program in self._processes)
                raise AssertionError(f"{name} was not {what} within {seconds:.0f} s:\n{story[-3000:]}\n{logs}")
            time.sleep(TICK)

    def log(self, program: str) -> str:
        """All that the controller has said."""
        return (self._folder / f"{program}.log").read_text(encoding="utf-8", errors="replace")

    def changes(self, name: str) -> list[tuple[str, dict[str, str]]]:
        """What each pass over the Kustomization did: the revision, and object → created, configured or unchanged."""
        found = list[tuple[str, dict[str, str]]]()
        for line in self.log("kustomize-controller").splitlines():
            said = json.loads(line) if line.startswith("{") else {}
            if isinstance(said.get("output"), dict) and (said.get("Kustomization") or {}).get("name") == name:
                found.append((said["revision"], {str(key): str(value) for key, value in said["output"].items()}))
        return found

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Raises AssertionError with what it said."""
        program = self._kubeconfig.parent / "bin" / "kubectl"
        command = [str(program), "--kubeconfig", str(self._kubeconfig), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def established(self, definition: str) -> None:
        """`kubectl wait` gives up on a definition that has no conditions yet."""
        deadline = time.monotonic() + 60.0
        while True:
            status = json.loads(self.kubectl("get", "crd", definition, "-o", "json")).get("status") or {}
            if any(item["type"] == "Established" and item["status"] == "True" for item in status.get("conditions", ())):
                return
            assert time.monotonic() < deadline, f"{definition} is not served"
            time.sleep(TICK)

    def _start(self, name: str, programs: dict[str, Path], *arguments: str) -> None:
        metrics, health = (self._ports.enter_context(held_port()) for _ in range(2))
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._kubeconfig),
            "RUNTIME_NAMESPACE": NAMESPACE,
            "TMPDIR": str(self._folder),
        }
        ports = [f"--metrics-addr=127.0.0.1:{metrics}", f"--health-addr=127.0.0.1:{health}"]
        command = [str(programs[name]), *ports, "--log-encoding=json", *arguments]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, env=environment, cwd=self._folder, stdout=log, stderr=log)

    def _follow(self) -> None:
        while not self._stopped:
            try:
                for event in watch.Watch().stream(
                    self._objects.list_namespaced_custom_object, **KUSTOMIZATIONS, timeout_seconds=3600
                ):
                    self._saw(event["object"])
            except (client.ApiException, HTTPError, OSError, ValueError) as error:
                if not self._stopped:
                    print(f"the watch of Kustomizations is begun anew: {error}")
                    time.sleep(TICK)

    def _saw(self, kustomization: dict[str, Any]) -> None:
        status = kustomization.get("status") or {}
        ready: dict[str, Any] = next((item for item in status.get("conditions", ()) if item["type"] == "Ready"), {})
        said = (
            ready.get("status", ""),
            ready.get("reason", ""),
            ready.get("message", ""),
            status.get("lastAppliedRevision", ""),
        )
        story = self.seen.setdefault(kustomization["metadata"]["name"], [])
        last = story[-1] if story else None
        if last is None or said != (last.ready, last.reason, last.message, last.applied):
            story.append(Seen(time.monotonic(), *said))


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
