"""How tests, proxies and benches reach an API server: by the operator's own client, or by a session of theirs."""

import asyncio
import ssl
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import load_kube_config

from learnloop_operator.kube import http_transport
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import ResourceKind

MERGE = "application/merge-patch+json"


def from_kubeconfig(path: Path) -> Configuration:
    """The current context, from anywhere: inside of an event loop and outside."""
    return _run(_read(path))


def find() -> Configuration:
    """As the operator finds it."""
    return _run(http_transport.find_configuration())


def tls_of(configuration: Configuration) -> ssl.SSLContext | bool:
    """The `ssl` argument of an aiohttp connector."""
    if not str(configuration.host).startswith("https://"):
        return True
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def authorization(configuration: Configuration) -> dict[str, str]:
    """The header that goes with each request; none where a client certificate does."""
    token = configuration.api_key.get("BearerToken")
    return {"Authorization": token} if token else {}


async def _read(path: Path) -> Configuration:
    configuration = Configuration()
    await load_kube_config(str(path), client_configuration=configuration, persist_config=False)
    return configuration


def _run(coroutine: Coroutine[Any, Any, Configuration]) -> Configuration:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def patch(kube: KubeClient, kind: ResourceKind, namespace: str, name: str, body: dict[str, Any]) -> None:
    """Change an object as its author does."""
    await kube.http.request("PATCH", kind.path(namespace, name), body=body, content_type=MERGE)
