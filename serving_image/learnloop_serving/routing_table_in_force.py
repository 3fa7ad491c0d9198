"""The routing table in force, where it is read, and the orders of people in it."""

import asyncio
import json
import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from learnloop_api.wire.routing import ROUTING_KEY, Override, RoutingTable, agent_tag
from learnloop_common.cluster_clock import ClusterClock
from learnloop_serving.server_metrics import Metrics
from learnloop_serving.settings import Settings

CAUTION = ("stop", "fallback", "fixed")
"""Of several that are in force the first kind is obeyed; of one kind the agent's own comes before that for all."""
APART_SECONDS = 5.0
"""How far two servers, and the operator, may be apart in what they take for the API server's clock: an episode that was
opened so shortly after the end of an override counts as touched by it."""


class Overrides:
    """Those of the newest table. They end by the API server's clock, with or without an operator."""

    def __init__(self, clock: ClusterClock | None = None) -> None:
        self._clock = clock or ClusterClock()
        self._ordered: tuple[tuple[str | None, Override], ...] = ()

    def take(self, listed: Sequence[Override]) -> None:
        """Obey these from now on."""
        ranked = sorted(listed, key=lambda one: (CAUTION.index(one.instead), one.agent is None))
        self._ordered = tuple([(None if one.agent is None else agent_tag(one.agent), one) for one in ranked])

    def now(self, tag: str) -> Override | None:
        """Override in force for an agent, by its tag ("": unknown agent)."""
        if not self._ordered:
            return None
        moment = self._clock.moment()
        return next((one for its, one in self._ordered if its in (None, tag) and one.in_force(moment)), None)

    def touched(self, tag: str, opened: float) -> bool:
        """Whether an override of the agent was in force at any moment since `opened` (Unix, seconds). Those that are
        listed have begun, whatever a clock says."""
        earliest = opened - APART_SECONDS
        return any(its in (None, tag) and earliest < one.until.timestamp() for its, one in self._ordered)


log = logging.getLogger(__name__)
POLL_SECONDS = 0.2
WATCH_SECONDS = 60  # the API server ends the watch after this; a read that is silent for longer means a dead peer
SILENCE_SECONDS = WATCH_SECONDS + 15.0
MAX_EVENT_BYTES = 4 * 1024 * 1024  # a ConfigMap holds at most 1 MiB


class RoutingState:
    """The newest valid table. A broken one is reported and ignored: the last good one stays in force."""

    def __init__(self, model_deployment: str, metrics: Metrics) -> None:
        self.table: RoutingTable | None = None
        self.clock = ClusterClock()
        self.overrides = Overrides(self.clock)
        self._listed: frozenset[str] = frozenset()
        self._model_deployment = model_deployment
        self._metrics = metrics

    def offer(self, text: str | None, source: str) -> bool:
        """Take `text` as the table if it is one; says whether it did."""
        try:
            if text is None:
                raise ValueError(f"key {ROUTING_KEY} is missing")
            table = RoutingTable.model_validate_json(text)
            if table.model_deployment != self._model_deployment:
                raise ValueError(f"model_deployment: {table.model_deployment!r}, expected {self._model_deployment!r}")
        except (ValidationError, ValueError) as error:
            self._metrics.routing_broken.inc()
            log.error("routing table from %s refused, the last good one stays in force: %s", source, _sentence(error))
            return False
        if self.table is None or table.generation != self.table.generation:
            log.info("routing generation %d: %s", table.generation, _summary(table))
        self.table = table
        self._listed = frozenset(arm.revision for arm in table.arms)
        self.overrides.take(table.overrides or ())
        self._metrics.routing_generation.set(table.generation)
        return True

    @property
    def expired(self) -> bool:
        """Has the dead-man switch of the table gone off, by the API server's clock?"""
        return self.table is not None and self.table.expired(self.clock.moment())

    def lists(self, revision: str) -> bool:
        """Is `revision` in the table? One that is not has been withdrawn."""
        return revision in self._listed


def _sentence(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'table'}: {e['msg']}" for e in error.errors()[:3])
    return str(error)[:300]


def _summary(table: RoutingTable) -> str:
    return ", ".join(f"{arm.revision} {arm.role} {arm.weight} %" for arm in table.arms) or "no arms"


async def follow_file(path: Path, state: RoutingState) -> None:
    """Poll `path` forever; for tests and local runs. Never raises but CancelledError."""
    current: tuple[int, int, int] | None = None
    while True:
        try:
            stat = path.stat()
            now = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if now != current:
                state.offer(path.read_text(encoding="utf-8"), str(path))
                current = now
        except (OSError, UnicodeDecodeError) as error:
            if current is not None or state.table is None:
                log.warning("routing file %s: %s", path, error)
            current = None
        await asyncio.sleep(POLL_SECONDS)


class ConfigMapWatch:
    """Follow one ConfigMap by name: a watch without a version begins with the object as it is."""

    def __init__(self, settings: Settings, state: RoutingState, metrics: Metrics) -> None:
        self._settings = settings
        self._state = state
        self._metrics = metrics

    async def follow(self) -> None:
        """Keep the table current until cancelled; back-off from 0.2 s to 5 s between failures."""
        pause = 0.2
        while True:
            try:
                async with self._client() as client:
                    while True:
                        await self._watch(client)
                        pause = 0.2
            except Exception as error:  # a watch that ends leaves an old table in force
                self._metrics.routing_watch_failed.inc()
                log.warning("routing watch of %s: %r", self._settings.routing_configmap, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _client(self) -> httpx.AsyncClient:
        """A fresh client each time: certificates rotate under a long-lived pod."""
        authority = self._settings.service_account / "ca.crt"
        verify: ssl.SSLContext | bool = (
            ssl.create_default_context(cafile=str(authority)) if authority.is_file() else True
        )
        return httpx.AsyncClient(
            base_url=self._settings.kubernetes_url,
            verify=verify,
            trust_env=False,
            timeout=httpx.Timeout(10.0, connect=5.0),
        )

    def _headers(self) -> dict[str, str]:
        """The token is read for every request: the kubelet replaces it long before it expires."""
        token = self._settings.service_account / "token"
        return {"authorization": f"Bearer {token.read_text(encoding='utf-8').strip()}"} if token.is_file() else {}

    async def _watch(self, client: httpx.AsyncClient) -> None:
        """One watch request, to its end."""
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={self._settings.routing_configmap}",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        path = f"/api/v1/namespaces/{self._settings.namespace}/configmaps"
        timeout, wanted = httpx.Timeout(10.0, read=SILENCE_SECONDS), self._state.clock.ask()
        async with client.stream("GET", path, params=query, headers=self._headers(), timeout=timeout) as response:
            self._state.clock.answered(wanted, response.headers.get("date"))
            if response.status_code != 200:
                raise ValueError(f"watch answered HTTP {response.status_code}")
            async for line in _lines(response):
                self._take(json.loads(line))

    def _take(self, event: Any) -> None:
        kind, item = event["type"], event["object"]
        name = self._settings.routing_configmap
        if kind in ("ADDED", "MODIFIED"):
            self._state.offer((item.get("data") or {}).get(ROUTING_KEY), f"ConfigMap {name}")
        elif kind == "DELETED":
            log.warning("ConfigMap %s was deleted, the last table stays in force", name)
        else:
            raise ValueError(f"watch sent {kind}: {str(item.get('message', ''))[:200]}")


async def _lines(response: httpx.Response) -> Any:
    """Lines of the stream as bytes, each at most MAX_EVENT_BYTES; raises ValueError beyond."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > MAX_EVENT_BYTES:
            raise ValueError(f"watch sent an event longer than {MAX_EVENT_BYTES} bytes")
