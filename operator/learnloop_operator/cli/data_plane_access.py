"""Requests to the data plane as a service account of the caller's namespace.

They go through the API server's service proxy with the caller's kubeconfig. Two rights decide: `create` on
`serviceaccounts/token` of that account, which is to speak for the namespace, and `get` and `create` on `services/proxy`
of the data plane's Service. The proxy keeps the header Authorization, so the token travels in one of its own.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from learnloop_api.names import HEADER_NAMESPACE, HEADER_TOKEN, TOKEN_AUDIENCE, memory_audience
from learnloop_operator.cli.cluster import KubernetesCluster
from learnloop_operator.cli.objects import CommandError, Object

SERVICE = "learnloop-system/learnloop-data:http"
SECONDS = 10.0
RENEW_SECONDS = 300.0
"""Half of a token's life."""


@dataclass(frozen=True, slots=True)
class DataPlaneOptions:
    """The data plane that is asked, and the account that asks."""

    memory_service: str | None = None
    data_service: str = SERVICE
    service_account: str = "default"


class DataPlaneAccess:
    """Requests of one command, all for the cluster's namespace."""

    def __init__(self, cluster: KubernetesCluster, options: DataPlaneOptions | None = None) -> None:
        self._options = options = options or DataPlaneOptions()
        memory = options.memory_service
        self.namespace = cluster.namespace
        self._cluster, self._account = cluster, options.service_account
        self._audience = memory_audience(cluster.namespace, memory) if memory else TOKEN_AUDIENCE
        service = f"{cluster.namespace}/{memory}-memory:http" if memory else options.data_service
        self._send = cluster.forward(service)
        self._token, self._since = "", -RENEW_SECONDS

    def within(self, cluster: KubernetesCluster) -> "DataPlaneAccess":
        """The same data plane, as the account of another namespace."""
        return DataPlaneAccess(cluster, self._options)

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        seconds: float = SECONDS,
    ) -> Any:
        """The answer's JSON. Raises CommandError with the data plane's own sentence."""
        if time.monotonic() - self._since >= RENEW_SECONDS:
            self._token, self._since = self._cluster.token(self._account, self._audience), time.monotonic()
        headers = {HEADER_TOKEN: self._token, HEADER_NAMESPACE: self.namespace}
        status, text = self._send(method, path, query or {}, headers, body, seconds)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if status >= 300 or answer is None:
            sentence = _sentence(answer) or text[:300]
            raise CommandError(f"the data plane answers {method} {path} with {status}: {sentence}")
        return answer


def _sentence(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return ""
    field = f"{error['field']}: " if error.get("field") else ""
    return f"{field}{error.get('message', '')}"
