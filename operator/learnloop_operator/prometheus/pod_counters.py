"""Counters of policy servers, read from the pods themselves: /metrics, text format 0.0.4.

A pod is a stranger: the answer is bounded in size and time, redirects are not followed, and only counters of the arm
are read.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from learnloop_api import names
from learnloop_operator.http_session import HttpSession, TooLarge, read_bounded
from learnloop_operator.rollout.checks.hard_bound import ENDED, FAILED, REQUESTS, WITHIN, Reading

LOOK_SECONDS = 0.8
MAX_ANSWER = 256 * 1024
LOOPBACK = "127.0.0.1"
AT_ONCE = 64
"""The most pods read of one arm: a gross breach shows in any 64 of them."""

_ACTING = ("act", "infer")
_SUMS = {names.METRIC_EPISODE_RETURN_GAIN: "gain", names.METRIC_EPISODE_RETURN_LOSS: "loss"}
_WANTED = (
    names.METRIC_EPISODES_ENDED,
    *_SUMS,
    names.METRIC_REQUEST_ERRORS,
    f"{names.METRIC_REQUEST_SECONDS}_count",
    f"{names.METRIC_REQUEST_SECONDS}_bucket",
    names.METRIC_SERVER_STARTED,
)
LONGEST_LINE = 1024
"""Characters of a sample; a longer line is not a policy server's."""


class PodUnreachable(Exception):
    """No answer: refused, cut off, or too late."""


class CountersUnusable(Exception):
    """An answer that is not the wanted arm's counters."""


@dataclass(frozen=True, slots=True)
class Target:
    """One pod that can be asked."""

    name: str
    address: str
    port: int | None = None
    """Of its metrics; None: the usual one."""
    tls: bool = False
    """It serves by TLS: its own annotation says so, as Prometheus reads it."""


def targets(pods: Iterable[Mapping[str, Any]]) -> tuple[Target, ...]:
    """The ready pods, in order of their names; at most AT_ONCE."""
    result = [
        Target(str(pod["metadata"]["name"]), str(pod["status"]["podIP"]), *_serving(pod))
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and _ready(pod.get("status") or {})
    ]
    return tuple(sorted(result, key=lambda target: target.name)[:AT_ONCE])


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of an arm's pods by name: each is in one of the two."""

    readings: Mapping[str, Reading]
    errors: Mapping[str, PodUnreachable | CountersUnusable]


class CounterReader(HttpSession):
    """Keep-alive connections to the pods of the arms on trial."""

    def __init__(self, seconds: float = LOOK_SECONDS) -> None:
        connections = {"limit": 0, "limit_per_host": 1, "keepalive_timeout": 15}
        super().__init__(seconds, connections, headers={"Accept-Encoding": "identity"}, auto_decompress=False)

    async def read_all(self, pods: Iterable[Target], namespace: str, deployment: str, revision: str) -> Answers:
        """A reading of each pod, or why there is none. A pod that hangs does not hide the others."""
        readings: dict[str, Reading] = {}
        errors: dict[str, PodUnreachable | CountersUnusable] = {}

        async def ask(pod: Target) -> None:
            try:
                readings[pod.name] = parse(await self._read(pod, namespace), deployment, revision)
            except (PodUnreachable, CountersUnusable) as error:
                errors[pod.name] = error

        await asyncio.gather(*(ask(pod) for pod in pods))
        return Answers(readings, errors)

    async def _read(self, pod: Target, namespace: str) -> str:
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        url = f"{'https' if pod.tls else 'http'}://{host}:{pod.port or names.PORT_PROBES}/metrics"
        # An address is not a name: the certificate must be one of the pod's own namespace.
        expected = f"{namespace}.{names.WORKLOADS_DOMAIN}" if pod.tls else None
        try:
            async with self.session.get(url, allow_redirects=False, server_hostname=expected) as response:
                body = await read_bounded(response, MAX_ANSWER)
        except TimeoutError as error:
            raise PodUnreachable(f"{pod.name}: no answer within {self._seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PodUnreachable(f"{pod.name}: {str(error) or type(error).__name__}") from error
        except TooLarge as error:
            raise CountersUnusable(f"{pod.name}: {error}") from error
        if response.status != 200:
            raise CountersUnusable(f"{pod.name}: /metrics answered {response.status}")
        return body.decode("utf-8", "replace")


def parse(text: str, deployment: str, revision: str) -> Reading:
    """The arm's counters in an exposition; series of other arms that the server also counts are left out.

    Raises:
        CountersUnusable: not a number, or no counters of this arm.
    """
    # Other lines are left out before anything parses them.
    lines = (line for line in text.splitlines() if line.startswith(_WANTED) and len(line) <= LONGEST_LINE)
    counters: dict[str, float] = {}
    process = None
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                labels = sample.labels
                if labels.get("model_deployment") != deployment or labels.get("revision") != revision:
                    continue
                if sample.name == names.METRIC_SERVER_STARTED:
                    process = _finite(sample.value)
                elif name := _counter(sample.name, labels):
                    counters[name] = counters.get(name, 0.0) + _finite(sample.value)
    except (ValueError, LookupError, AssertionError, TypeError) as error:
        raise CountersUnusable(f"invalid exposition: {str(error)[:80]}") from error
    if process is None or REQUESTS not in counters:
        raise CountersUnusable(f"no counters of {deployment} revision {revision}")
    return Reading(process, counters)


def _counter(metric: str, labels: Mapping[str, str]) -> str:
    """Name of the counter that a sample adds to; "" for one that is not read."""
    if metric == names.METRIC_EPISODES_ENDED:
        return ENDED + labels.get("outcome", "")
    if metric in _SUMS:
        return _SUMS[metric]
    if labels.get("verb") not in _ACTING:
        return ""
    if metric == f"{names.METRIC_REQUEST_SECONDS}_bucket":
        return f"{WITHIN}{_bound(labels.get('le'))!r}"
    return {names.METRIC_REQUEST_ERRORS: FAILED, f"{names.METRIC_REQUEST_SECONDS}_count": REQUESTS}.get(metric, "")


def _bound(text: str | None) -> float:
    bound = float(text or "")
    if math.isnan(bound):
        raise ValueError(f"{text} is not the bound of a bucket")
    return bound


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a number that a counter can have")
    return value


def _serving(pod: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Port and TLS of its metrics, by its own annotations, as Prometheus reads them.

    The port only on loopback, where pods of one machine share an address: a mesh puts its own port there, and no tenant
    sends the operator to another one.
    """
    notes = pod["metadata"].get("annotations") or {}
    port = notes.get(names.ANNOTATION_PORT) if pod["status"]["podIP"] == LOOPBACK else None
    return int(port) if port else None, notes.get(names.ANNOTATION_SCHEME) == "https"


def _ready(status: Mapping[str, Any]) -> bool:
    conditions = {item.get("type"): item.get("status") for item in status.get("conditions") or ()}
    return bool(status.get("podIP")) and conditions.get("Ready") == "True"
