"""A mutating webhook as service meshes and log shippers have: it adds a sidecar to every pod of one namespace."""

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from learnloop_operator.kube.client import KubeClient
from testing.certificates import LIFE, Folder, make_authority

_KIND = "admissionregistration.k8s.io/v1"
_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@asynccontextmanager
async def injecting(
    kube: KubeClient, namespace: str, sidecar: dict[str, Any], folder: Path
) -> AsyncIterator[list[str]]:
    """For the time of the block, pods that are created in the namespace get `sidecar`, a core/v1 Container.

    Yields the names under which it was asked, `NAME (dry run)` where nothing was to be made.
    """
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        metadata = review["object"]["metadata"]
        name = metadata.get("name") or metadata.get("generateName", "")
        asked.append(f"{name} (dry run)" if review.get("dryRun") else name)
        patch = [{"op": "add", "path": "/spec/containers/-", "value": sidecar}]
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        response = {"uid": review["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    authority = make_authority("webhook", datetime.now(UTC), LIFE)
    files = Folder(folder).trust(authority).show(authority, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    configuration = {
        "apiVersion": _KIND,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "inject.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "clientConfig": {
                    "url": f"https://localhost:{runner.addresses[0][1]}/",
                    "caBundle": base64.b64encode(authority.certificate.encode()).decode(),
                },
            }
        ],
    }
    await kube.http.request("POST", _PATH, body=configuration)
    try:
        yield asked
    finally:
        await kube.http.request("DELETE", f"{_PATH}/{namespace}")
        await runner.cleanup()
