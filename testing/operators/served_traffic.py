"""Agents that play by the routing table in force, and a Prometheus that counts what they did. Time is the tests'."""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from learnloop_api import names

START = datetime(2030, 1, 1, tzinfo=UTC)
EPISODES_PER_SECOND = 8.0
_NAMESPACE = re.compile(r'namespace="([^"]+)"')
_REVISIONS = re.compile(r'revision="([^"]+)"')
_WINDOW = re.compile(r"\[(\d+)s\]")
_COUNTED = re.compile(r'\[(\d+)s\](?: offset (\d+)s)?\)\), "learnloop_signal", "(\w+)"')


@dataclass(slots=True)
class Traffic:
    """The acts of all arms of one ModelDeployment, second by second. `quality`: success rate by revision, 0 to 1;
    `shares`: percent of new episodes by revision, as users get them now."""

    now: datetime = START
    shares: Callable[[], Mapping[str, int]] = dict
    quality: dict[str, float] = field(default_factory=dict)
    per_second: float = EPISODES_PER_SECOND
    unknown_until: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """No question about it is answered before."""
    _times: list[datetime] = field(default_factory=list)
    _played: list[dict[str, float]] = field(default_factory=list)

    def clock(self) -> datetime:
        """The time decisions are taken at."""
        return self.now

    def pass_time(self, seconds: float) -> None:
        """Let agents play; each whole second is one scrape."""
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:
            step = min(timedelta(seconds=1), until - self.now)
            self.now += step
            before = self._played[-1] if self._played else {}
            played = dict(before)
            for revision, percent in self.shares().items():
                count = self.per_second * step.total_seconds() * percent / 100.0
                played[revision] = played.get(revision, 0.0) + count
            self._times.append(self.now)
            self._played.append(played)

    def growth(self, revision: str, seconds: float) -> float:
        """Episodes of the arm that ended within the last `seconds`."""
        if not self._played:
            return 0.0
        index = bisect_right(self._times, self.now - timedelta(seconds=seconds)) - 1
        earlier = self._played[index].get(revision, 0.0) if index >= 0 else 0.0
        return float(int(self._played[-1].get(revision, 0.0)) - int(earlier))

    def success_share(self, revision: str, seconds: int, ago: int) -> float:
        """Of the arm's episodes in a window that ended `ago` seconds ago, the share that succeeded."""
        return self.quality.get(revision, 1.0)


class Provider:
    """One Prometheus for many namespaces; `down` answers 503."""

    def __init__(self) -> None:
        self.traffic: dict[str, Traffic] = {}
        self.down = False
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a free port of the loopback."""
        app = web.Application()
        app.router.add_post("/api/v1/query", self._query)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _query(self, request: web.Request) -> web.Response:
        if self.down:
            return web.Response(status=503, text="starting")
        promql = str((await request.post())["query"])
        namespace = _NAMESPACE.search(promql)
        traffic = self.traffic.get(namespace[1]) if namespace else None
        if traffic and traffic.now < traffic.unknown_until:
            return web.Response(status=503, text="starting")
        rows = _rows(traffic, promql) if traffic else []
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": rows}})


def _rows(traffic: Traffic, promql: str) -> list[dict[str, Any]]:
    """The vector that `counters_query` asks for; episodes end as they are opened."""
    if names.METRIC_SHADOW_COMPARED in promql:
        return _copies(traffic, promql, int(_WINDOW.findall(promql)[0]))
    revisions = dict.fromkeys(_REVISIONS.findall(promql))
    spans = {signal: (int(span), int(ago or 0)) for span, ago, signal in _COUNTED.findall(promql)}
    if not revisions or "ended" not in spans:
        return []
    now = traffic.now.timestamp()
    rows = [_row({"learnloop_signal": "clock"}, now, now)]
    for revision in revisions:
        counted = {signal: _grown(traffic, revision, *when) for signal, when in spans.items()}
        if not (count := counted["ended"]):
            continue
        quality = traffic.success_share(revision, *spans["ended"])
        arm = {"revision": revision}
        rows += [
            _row({**arm, "learnloop_signal": "ended", "outcome": "success"}, now, count * quality),
            _row({**arm, "learnloop_signal": "ended", "outcome": "failure"}, now, count * (1.0 - quality)),
            _row({**arm, "learnloop_signal": "gain"}, now, count * 100.0 * quality),
            _row({**arm, "learnloop_signal": "scraped"}, now, now),
        ]
        also = ("lately", "opened", "in_time", "due")
        rows += [_row({**arm, "learnloop_signal": it}, now, counted[it]) for it in also if it in counted]
        lasted = ({**arm, "learnloop_signal": "lasted", "le": bound} for bound in ("1.0", "+Inf"))
        rows += [_row(labels, now, count) for labels in lasted if "lasted" in counted]
    return rows


def _grown(traffic: Traffic, revision: str, seconds: int, ago: int) -> float:
    """Episodes of the arm in a window that ended `ago` seconds ago."""
    return traffic.growth(revision, seconds + ago) - traffic.growth(revision, ago)


def _copies(traffic: Traffic, promql: str, seconds: int) -> list[dict[str, Any]]:
    """The counters of an arm in shadow: as many copies as stable has episodes, and it agrees as often as it is good."""
    revisions, now = _REVISIONS.search(promql), traffic.now.timestamp()
    stable = max(traffic.shares().items(), key=lambda item: item[1], default=("", 0))[0]
    if revisions is None or not (count := traffic.growth(stable, seconds)):
        return []
    agreed = count * traffic.quality.get(revisions[1], 1.0)
    figures = {"compared": count, "agreed": agreed, "errors": 0.0, "scraped": now, "clock": now}
    return [
        _row({"revision": revisions[1], "learnloop_signal": signal}, now, value) for signal, value in figures.items()
    ]


def _row(labels: Mapping[str, str], now: float, value: float) -> dict[str, Any]:
    return {"metric": dict(labels), "value": [now, repr(value)]}
