"""Reads the cluster through one `kubectl proxy`: a request costs a millisecond instead of a process."""

import contextlib
import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from demo.settings import RELEASE, SYSTEM_NAMESPACE
from toolkit.commands import ask

Json = dict[str, Any]
TIMEOUT_SECONDS = 10


class Api:
    """A read-only view of the cluster plus `kubectl` for everything that writes."""

    def __init__(self, base: str, kubectl: list[str]) -> None:
        self._base = base
        self._kubectl = kubectl

    def get(self, path: str) -> Json | None:
        """The object at an API path; None when it does not exist (yet) or the API server is busy."""
        body = self.text(path)
        return None if body is None else json.loads(body)

    def text(self, path: str) -> str | None:
        """The body at an API path, or None."""
        try:
            with urllib.request.urlopen(self._base + path, timeout=TIMEOUT_SECONDS) as response:
                return str(response.read().decode())
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None

    def custom(self, namespace: str, plural: str, name: str = "") -> Json | None:
        """A learnloop object, or the list of them."""
        return self.get(f"/apis/learnloop.dev/v1alpha1/namespaces/{namespace}/{plural}/{name}".rstrip("/"))

    def pods(self, namespace: str, selector: str) -> list[Json]:
        """Pods by label."""
        answer = self.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={urllib.parse.quote(selector)}")
        return list(answer["items"]) if answer else []

    def pod_metrics(self, pod: Json) -> str | None:
        """The metrics of a policy server or gateway, or None."""
        metadata = pod["metadata"]
        port = f"{'https:' if _by_tls(pod) else ''}{metadata['name']}:8080"
        return self.text(f"/api/v1/namespaces/{metadata['namespace']}/pods/{port}/proxy/metrics")

    def trainer_image(self) -> str:
        """The image the installed operator trains with: it has onnx, and this cluster can surely pull it."""
        path = f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/deployments/{RELEASE}-operator"
        containers = (self.get(path) or {})["spec"]["template"]["spec"]["containers"]
        environment = {item["name"]: item.get("value") for item in containers[0]["env"]}
        return str(environment["LEARNLOOP_TRAINER_IMAGE"])

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Runs kubectl; raises CalledProcessError with its stderr when it fails."""
        command = [*self._kubectl, *arguments]
        answer = ask(command, stdin=stdin)
        if answer.code:
            raise subprocess.CalledProcessError(answer.code, command, answer.out, answer.err)
        return answer.out


def _by_tls(pod: Json) -> bool:
    """As the kubelet asks it whether it is ready."""
    probes = [container.get("readinessProbe") or {} for container in pod["spec"]["containers"]]
    return any((probe.get("httpGet") or {}).get("scheme") == "HTTPS" for probe in probes)


@contextlib.contextmanager
def connect(kubectl: list[str]) -> Iterator[Api]:
    """Starts `kubectl proxy` on a free loopback port for the time of the block."""
    proxy = subprocess.Popen(
        [*kubectl, "proxy", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert proxy.stdout is not None
        line = proxy.stdout.readline()
        address = re.search(r"127\.0\.0\.1:\d+", line)
        if not address:
            raise RuntimeError(f"kubectl proxy did not start: {line.strip()}")
        yield Api(f"http://{address.group()}", kubectl)
    finally:
        proxy.terminate()
        proxy.wait()
