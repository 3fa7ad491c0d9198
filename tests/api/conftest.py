"""A real API server for the session, with learnloop's CRDs in it, and a small client that says what was refused."""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

REPOSITORY = Path(__file__).resolve().parents[2]
CRDS = sorted((REPOSITORY / "crds").glob("*.yaml"))
CLUSTER = [sys.executable, str(REPOSITORY / "hack" / "cluster")]
ESTABLISHED_SECONDS = 120.0

KubeObject = Mapping[str, Any]
Kubectl = Callable[..., str]


class Refused(Exception):
    """The API server's answer to what it does not accept. `message` is what a user reads."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Kube:
    """Reads and writes manifests of any kind the API server knows, with strict field validation."""

    Refused = Refused

    def __init__(self, kubeconfig: Path) -> None:
        self._api = config.new_client_from_config(str(kubeconfig))
        self._plurals: dict[tuple[str, str], str] = {}

    def apply(
        self,
        manifest: KubeObject,
        *,
        manager: str = "test",
        force: bool = False,
        subresource: str = "",
        dry: bool = False,
    ):
        """Server-side apply. Raises Refused."""
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        if dry:
            query["dryRun"] = "All"
        path = self.path(manifest, subresource)
        return self.call("PATCH", path, query, manifest, "application/apply-patch+yaml")

    def create(self, manifest: KubeObject, *, dry: bool = False):
        """Create, as `kubectl create` does. Raises Refused."""
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry else {})}
        return self.call("POST", self.path(manifest).rsplit("/", 1)[0], query, manifest)

    def merge(self, manifest: KubeObject, change: KubeObject, subresource: str = ""):
        """JSON merge patch of the object that `manifest` names. Raises Refused."""
        path = self.path(manifest, subresource)
        return self.call("PATCH", path, {"fieldValidation": "Strict"}, change, "application/merge-patch+json")

    def get(self, manifest: KubeObject, subresource: str = ""):
        """The object that `manifest` names, as it is stored. Raises Refused."""
        return self.call("GET", self.path(manifest, subresource))

    def delete(self, manifest: KubeObject) -> None:
        """Delete the object that `manifest` names. Raises Refused."""
        self.call("DELETE", self.path(manifest))

    def refusal(self, write: Callable[[], object]) -> str:
        """The API server's refusal of `write`; fails without one."""
        with pytest.raises(Refused) as caught:
            write()
        return str(caught.value.message)

    def path(self, manifest: KubeObject, subresource: str = "") -> str:
        """URL path of the object that `manifest` names."""
        version, metadata = str(manifest["apiVersion"]), manifest["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        tail = f"/{subresource}" if subresource else ""
        return f"{root}{namespace}/{self._plural(root, str(manifest['kind']))}/{metadata['name']}{tail}"

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: KubeObject | None = None,
        content_type: str = "application/json",
    ):
        """One request; the answer's JSON. Raises Refused."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            return self._api.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                response_type="object",
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=120,
            )
        except client.ApiException as error:
            raise Refused(error.status, _message(error.body)) from error

    def _plural(self, root: str, kind: str) -> str:
        if (root, kind) not in self._plurals:
            for item in self.call("GET", root)["resources"]:
                if "/" not in item["name"]:
                    self._plurals[root, item["kind"]] = item["name"]
        return self._plurals[root, kind]


def _message(body: str | None) -> str:
    try:
        return str(json.loads(body or "")["message"])
    except (ValueError, KeyError):
        return body or ""


@pytest.fixture(scope="session")
def api_server() -> Iterator[Path]:
    """Kubeconfig of an API server of this session's own, with the CRDs established."""
    folder = Path(tempfile.mkdtemp(prefix="learnloop-api-"))
    started = subprocess.run(
        [*CLUSTER, "up", "--control-plane-only", "--state", str(folder)], capture_output=True, text=True
    )
    try:
        assert started.returncode == 0, started.stderr
        kubeconfig = Path(started.stdout.strip().splitlines()[-1])
        _install(Kube(kubeconfig))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(kubeconfig.parent / "bin"), prepend=os.pathsep)  # the plugin runs kubectl
            yield kubeconfig
    finally:
        subprocess.run(
            [*CLUSTER, "down", "--control-plane-only", "--state", str(folder)], capture_output=True, check=False
        )


@pytest.fixture(scope="session")
def kube(api_server: Path) -> Kube:
    """A client with all rights."""
    return Kube(api_server)


@pytest.fixture(scope="session")
def kubectl(api_server: Path) -> Kubectl:
    """Runs the kubectl that belongs to the API server; returns what it prints, with `fails` to standard error."""

    def run(*arguments: str, fails: bool = False) -> str:
        program = api_server.parent / "bin" / "kubectl"
        command = [str(program), "--kubeconfig", str(api_server), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    return run


@pytest.fixture
def namespace(kube: Kube) -> str:
    """A namespace of the test's own. It goes with the API server: no controller is there to empty it."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def _install(kube: Kube) -> None:
    definitions = [yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader) for path in CRDS]
    for definition in definitions:
        kube.apply(definition)
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    waiting = definitions
    while waiting:
        assert time.monotonic() < deadline, [item["metadata"]["name"] for item in waiting]
        waiting = [item for item in waiting if not _established(kube.get(item))]
        time.sleep(0.1)


def _established(definition: KubeObject) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
