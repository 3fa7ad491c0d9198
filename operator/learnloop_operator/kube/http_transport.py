"""Requests to the API server by the official asyncio client: kubeconfig, time-outs, bounded retries, typed errors."""

import asyncio
import logging
import os
import random
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
import yaml
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

from learnloop_common.cluster_clock import ClusterClock
from learnloop_operator.kube.errors import KubeError, Unavailable, error_for


class NoCluster(Exception):
    """Neither a service account nor a usable kubeconfig; the message says what to do."""


async def find_configuration() -> Configuration:
    """KUBECONFIG when set, else the service account, else ~/.kube/config.

    Raises:
        NoCluster: none of them is usable.
    """
    configuration, path = Configuration(), os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    try:
        if not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            file = path or "~/.kube/config"
            await load_kube_config(file, client_configuration=configuration, persist_config=False)
    except (ConfigException, OSError, yaml.YAMLError) as error:
        fix = "set KUBECONFIG, or run in a pod with a service account token"
        raise NoCluster(f"no usable cluster configuration{f' {path}' if path else ''}: {error}; {fix}") from error
    return configuration


log = logging.getLogger(__name__)

REQUEST_SECONDS, CONNECT_SECONDS = 10.0, 5.0
REQUESTS = 32
"""Requests in parallel. The API server controls congestion: Priority and Fairness, and 429 with Retry-After."""
BACKOFFS = (0.2, 0.5, 1.0, 2.0)
MAX_RETRY_AFTER = 10.0


class KubeHttp:
    """One connection pool to one API server, with at most REQUESTS requests under way besides watches.

    `guard` is called before each attempt of a write, and again when its connection is ready.
    """

    def __init__(
        self,
        configuration: Configuration,
        timeout: float = REQUEST_SECONDS,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self.configuration, self._guard = configuration, guard
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=min(CONNECT_SECONDS, timeout))
        self._slots = asyncio.Semaphore(REQUESTS)
        self.clock = ClusterClock()
        self._api: ApiClient | None = None

    async def close(self) -> None:
        if self._api is not None:
            await self._api.close()
            self._api = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """The decoded answer. 429 and 5xx are tried again, at most four times, after Retry-After when given.

        Every write the operator makes is idempotent (server-side apply, deletes with a uid, creates that tolerate
        Conflict), so it is safe to repeat one whose answer was lost.

        Raises:
            KubeError: one of its subclasses by status; Unavailable when the retries are used up.
        """
        for backoff in (*BACKOFFS, None):
            try:
                async with self._slots:
                    return await self._once(method, path, body, content_type, query)
            except Unavailable as error:
                if backoff is None:
                    raise
                wait = min(error.retry_after, MAX_RETRY_AFTER) if error.retry_after is not None else backoff
                log.debug("%s %s: %s; again in %.1f s", method, path, error, wait)
                await asyncio.sleep(wait * random.uniform(1.0, 1.2))
        raise AssertionError("unreachable")

    async def _once(
        self, method: str, path: str, body: Any, content_type: str, query: dict[str, str] | None
    ) -> dict[str, Any]:
        if method != "GET":
            self._guard()
        if self._api is None:  # its session belongs to the running event loop
            self._api = self._client()
        wanted = self.clock.ask()
        try:
            response = await self._api.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,  # raw: models of a list take twenty times as long as JSON
                _request_timeout=self._timeout,
            )
            async with response:
                self.clock.answered(wanted, response.headers.get("Date"))
                if response.status >= 300:
                    raise await _refusal(response, method, path)
                answer = orjson.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{method} {path}: no answer from the API server: {reason}") from error
        except ValueError as error:
            raise KubeError(f"{method} {path}: unusable answer: {error}") from error
        return dict(answer)

    def _client(self) -> ApiClient:
        made = ApiClient(self.configuration)
        made.user_agent = "learnloop-operator"
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(self._about_to_send)
        trace.freeze()
        made.rest_client.pool_manager.trace_configs.append(trace)
        return made

    async def _about_to_send(
        self, _session: aiohttp.ClientSession, _context: object, sent: aiohttp.TraceRequestHeadersSentParams
    ) -> None:
        # Called before the first byte. Waiting for a connection can take seconds, and aiohttp repeats a PUT or DELETE
        # by itself when the server has closed the connection it was sent on.
        if sent.method != "GET":
            self._guard()


async def _refusal(response: aiohttp.ClientResponse, method: str, path: str) -> KubeError:
    reason, message = "", response.reason or ""
    try:
        status = orjson.loads(await response.read())
        reason, message = str(status.get("reason", "")), str(status.get("message", "")) or message
    except (ValueError, AttributeError, aiohttp.ClientError):
        pass
    after = response.headers.get("Retry-After", "")
    seconds = float(after) if after.isdecimal() else None
    return error_for(response.status, f"{method} {path}: {response.status} {message}", reason, seconds)
