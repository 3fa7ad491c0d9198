"""Argo CD: application-controller, repo-server and redis as processes of this machine, as its own `Procfile` runs them.

The user interface's server is left out: whatever it does for a sync or a health check, the controller does.
"""

import json
import os
import secrets
import shutil
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
from toolkit import debian_packages

VERSION = "v3.6.1"
PACKAGE = "github.com/argoproj/argo-cd/v3"
NAMESPACE = "argocd"
GROUP = {"group": "argoproj.io", "version": "v1alpha1", "namespace": NAMESPACE, "plural": "applications"}
TICK = 0.1


ARGO_CD = go_build.Module("argocd", {"cmd": f"{PACKAGE}/cmd"}, go="1.27.3", sources=Path(__file__).parent)


def program() -> Path:
    """The one program of Argo CD, built once for each go.mod and go.sum; ten minutes of a processor."""
    return go_build.ensure(ARGO_CD, ARGO_CD.programs)["cmd"]


def sources() -> Path:
    """Its manifests and scripts."""
    return go_build.module_folder(ARGO_CD, PACKAGE)


@dataclass(frozen=True)
class Seen:
    """What an Application's status said, and when (time.monotonic)."""

    at: float
    sync: str
    health: str
    revision: str
    operation: str


class ArgoCD:
    """One that manages the cluster of `kubeconfig`. `seen`: each change of an Application's status, in order."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._kubeconfig, self._folder = kubeconfig, folder
        self._names: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        api = config.new_client_from_config(str(kubeconfig))
        self._objects = client.CustomObjectsApi(api)
        self.seen: dict[str, list[Seen]] = {}
        self._stopped, self._ports = False, ExitStack()

    def install(self, patch: Path) -> None:
        """Its kinds and settings as released, and our patch of its ConfigMap as charts/argocd/README.md has it."""
        manifests = sources() / "manifests"
        self.kubectl("create", "namespace", NAMESPACE)
        self.kubectl("apply", "--server-side", "-k", str(manifests / "crds"))
        self._established("applications.argoproj.io", "appprojects.argoproj.io")
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
        found = debian_packages.locate("redis-server") or "redis-server"
        self._start(found, "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
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
        threading.Thread(target=self._follow, daemon=True).start()

    def stop(self) -> None:
        """Everything that was started ends."""
        self._stopped = True
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ports.close()

    def apply(self, application: dict[str, Any]) -> None:
        """Create an Application."""
        self._objects.create_namespaced_custom_object(**GROUP, body=application)

    def refresh(self, name: str) -> None:
        """Look at Git now, as a webhook of the repository has it do."""
        body = {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}}
        self._objects.patch_namespaced_custom_object(**GROUP, name=name, body=body)

    def until(self, name: str, what: str, wanted: Callable[[Seen], bool], seconds: float) -> Seen:
        """The first status of the Application that is as wanted.

        Raises:
            AssertionError: there is none within `seconds`; carries the Application's status and the controller's log.
        """
        deadline = time.monotonic() + seconds
        while True:
            for seen in list(self.seen.get(name, ())):
                if wanted(seen):
                    return seen
            self._alive()
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} was not {what} within {seconds:.0f} s: {self._story(name)}")
            time.sleep(TICK)

    def after(self, name: str, moment: float) -> list[Seen]:
        """What was seen of the Application since then."""
        return [seen for seen in self.seen.get(name, ()) if seen.at >= moment]

    def kubectl(self, *arguments: str) -> str:
        """Raises AssertionError with what it said."""
        program_file = self._kubeconfig.parent / "bin" / "kubectl"
        command = [str(program_file), "--kubeconfig", str(self._kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def _established(self, *definitions: str) -> None:
        """`kubectl wait` gives up on a definition that has no conditions yet."""
        deadline = time.monotonic() + 60.0
        for definition in definitions:
            while not _served(json.loads(self.kubectl("get", "crd", definition, "-o", "json"))):
                assert time.monotonic() < deadline, f"{definition} is not served"
                time.sleep(TICK)

    def _alive(self) -> None:
        """A process that has ended will never do what is waited for."""
        for name, process in zip(self._names, self._processes, strict=True):
            log = self._folder / f"{name}.log"
            assert process.poll() is None, f"{name} ended with {process.returncode}: {log.read_text()[-1500:]}"

    def _story(self, name: str) -> str:
        application = self._objects.get_namespaced_custom_object(**GROUP, name=name)
        status = application.get("status") or {}
        resources = [
            (item["kind"], item["name"], item.get("status"), item.get("health"))
            for item in status.get("resources", ())
            if item.get("status") != "Synced"
        ]
        log = (self._folder / "argocd-application-controller.log").read_text(errors="replace")[-3000:]
        known = {key: status.get(key) for key in ("sync", "health", "conditions", "operationState")}
        return f"{str(known)[:3000]}\nnot synced: {resources}\n{log}"

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
        found = self._folder / "bin" / name
        with (self._folder / f"{Path(name).name}.log").open("ab") as log:
            command = [str(found) if found.exists() else name, *arguments]
            self._names.append(Path(name).name)
            self._processes.append(subprocess.Popen(command, env=environment, cwd=self._folder, stdout=log, stderr=log))

    def _follow(self) -> None:
        while not self._stopped:
            try:
                for event in watch.Watch().stream(
                    self._objects.list_namespaced_custom_object, **GROUP, timeout_seconds=3600
                ):
                    self._saw(event["object"])
            except (client.ApiException, HTTPError, OSError, ValueError) as error:
                if not self._stopped:
                    print(f"the watch of Applications is begun anew: {error}")
                    time.sleep(TICK)

    def _saw(self, application: dict[str, Any]) -> None:
        status = application.get("status") or {}
        sync, story = status.get("sync") or {}, self.seen.setdefault(application["metadata"]["name"], [])
        seen = Seen(
            time.monotonic(),
            sync.get("status", ""),
            (status.get("health") or {}).get("status", ""),
            sync.get("revision", ""),
            (status.get("operationState") or {}).get("phase", ""),
        )
        said = (seen.sync, seen.health, seen.revision, seen.operation)
        last = story[-1] if story else None
        if last is None or said != (last.sync, last.health, last.revision, last.operation):
            story.append(seen)


def _served(definition: dict[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


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
