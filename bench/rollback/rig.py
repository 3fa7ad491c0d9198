"""The cluster of the bench: learnloop by its chart, a gateway, and what both sides need of it."""

import base64
import hashlib
import json
import ssl
import subprocess
from dataclasses import dataclass
from typing import Any

import aiohttp

from demo.settings import SYSTEM_NAMESPACE
from learnloop_api import names
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import SERVICE

NAMESPACE = "bench-rollback"


@dataclass(frozen=True)
class Rig:
    """All addresses. `model`: address and digest of the faulty model in the data plane; `user`: who applies."""

    kubectl: list[str]
    kube: KubeClient
    gateway: str
    prometheus: str
    model: dict[str, str]
    user: str

    def apply(self, *objects: dict[str, Any]) -> None:
        """Server-side apply into the bench's namespace, as a user would."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        # The API server validates anyway; its whole schema, which kubectl would fetch first, is late on a busy machine.
        options = ["--server-side", "--force-conflicts", "--validate=false"]
        run([*self.kubectl, "apply", "-n", NAMESPACE, *options, "-f", "-"], document)


def run(command: list[str], stdin: str | None = None) -> str:
    """Standard output; RuntimeError with what the program said when it fails."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command[:6])} …`: {done.stderr.strip()[-600:]}")
    return done.stdout


def established(kubectl: list[str], *definitions: str) -> None:
    """Waits until the API server serves these CustomResourceDefinitions, `crd/…` each.

    `kubectl wait` fails at a list of conditions that is not there yet; names are accepted before they are served.
    """
    for wanted in ("jsonpath={.status.acceptedNames.plural}", "condition=Established"):
        run([*kubectl, "wait", f"--for={wanted}", "--timeout=60s", *definitions])


def fresh_namespace(kubectl: list[str]) -> None:
    """Create the namespace, without what an earlier run left."""
    run([*kubectl, "delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait", "--timeout=120s"])
    run([*kubectl, "create", "namespace", NAMESPACE])


async def enter(kubectl: list[str], kube: KubeClient, model: bytes, *, tls: bool = False) -> Rig:
    """Push the model to the data plane, with a token of the namespace.

    Args:
        tls: learnloop's parts speak TLS; then Prometheus, too, which `Rig.prometheus` does not say.
    """
    gateway = await _address(kube, "gateway", "gateway", 80)
    prometheus = await _address(kube, SYSTEM_NAMESPACE, "learnloop-prometheus", 9090)
    data = await _address(kube, SYSTEM_NAMESPACE, "learnloop-data", 8080)
    token = run([*kubectl, "create", "token", "default", "-n", NAMESPACE, "--audience=learnloop"]).strip()
    digest = hashlib.sha256(model).hexdigest()
    headers = {"Authorization": f"Bearer {token}", "x-learnloop-sha256": digest}
    # It is reached by its address; its certificate says the name by which Prometheus knows whatever it scrapes.
    trusted: dict[str, Any] = {"ssl": authorities(kubectl), "server_hostname": names.WORKLOADS_DOMAIN} if tls else {}
    url = f"{data.replace('http', 'https') if tls else data}/api/v1/artifacts"
    async with aiohttp.request("PUT", url, data=model, headers=headers, **trusted) as answer:
        answered = await answer.json()
        if answer.status >= 300:
            raise RuntimeError(f"the data plane did not take the model: {answered}")
    user = run([*kubectl, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
    return Rig(kubectl, kube, gateway, prometheus, {"uri": answered["uri"], "sha256": digest}, user)


def authorities(kubectl: list[str]) -> ssl.SSLContext:
    """The authority that vouches for the installation's own parts."""
    place = [*kubectl, "get", "secret", "-n", SYSTEM_NAMESPACE, "learnloop-tls-data"]
    coded = run([*place, "-o", f"jsonpath={{.data.{names.CA_KEY.replace('.', chr(92) + '.')}}}"])
    return ssl.create_default_context(cadata=base64.b64decode(coded).decode())


async def _address(kube: KubeClient, namespace: str, service: str, port: int) -> str:
    """A Service as this machine reaches it: kube-proxy's rules hold for the node's own processes too."""
    service_object = await kube.get(SERVICE, namespace, service)
    return f"http://{service_object['spec']['clusterIP']}:{port}"
