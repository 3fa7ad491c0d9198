"""Prometheus as it was: the operator's own queries at a moment of the past, and which rollouts there were.

The address is the caller's: a URL, or the chart's Prometheus through the API server's service proxy, with the caller's
kubeconfig and the right to `get` on `services/proxy`.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from learnloop_api.names import METRIC_EPISODES_OPENED, METRIC_SHADOW_COMPARED
from learnloop_operator.adapters.prometheus import Prometheus, PrometheusUnreachable
from learnloop_operator.cli.errors import CommandError

Ask = Callable[[str, Mapping[str, str]], tuple[int, str]]
"""One GET: the path behind /api/v1/ and its parameters → status and body. Raises CommandError."""
POINTS = 10_000
"""Prometheus answers at most 11,000 points of a series; longer times are asked for in pieces."""
PIECES = 100
STEP = 5.0
"""Seconds between two moments asked for: nothing is decided in less (windows.SHORTEST)."""
SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """One rollout the record knows of: `canary` got episodes beside `stable` from `began` to `ended`; so did `guests`,
    the other arms of an experiment."""

    canary: str
    stable: str
    began: datetime
    ended: datetime
    guests: frozenset[str] = frozenset()


class History(Prometheus):
    """The operator's Prometheus client at the moment `at`."""

    def __init__(self, ask: Ask) -> None:
        super().__init__("history")
        self._ask = ask
        self.at = datetime.now(UTC)

    async def _post(self, promql: str) -> tuple[int, Any]:
        form = {"query": promql, "time": f"{self.at.timestamp():.3f}"}
        try:
            status, body = await asyncio.to_thread(self._ask, "query", form)
            return status, json.loads(body)
        except CommandError as error:
            raise PrometheusUnreachable(str(error)) from error
        except ValueError:
            return status, None

    def rollouts(self, namespace: str, name: str, last: timedelta) -> list[Recorded]:
        """Every time a revision appeared beside another one, oldest first.

        Raises:
            CommandError: Prometheus refuses or does not answer.
        """
        step, series = resolution(last), dict[str, list[float]]()
        opened = f'sum by (revision) ({METRIC_EPISODES_OPENED}{{namespace="{namespace}", model_deployment="{name}"}})'
        for start, end in pieces(self.at.timestamp(), last.total_seconds(), step):
            form = {"query": opened, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
            status, body = self._ask("query_range", form)
            try:
                for row in json.loads(body)["data"]["result"]:
                    moments = [float(point[0]) for point in row["values"]]
                    series.setdefault(str(row["metric"]["revision"]), []).extend(moments)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise CommandError(f"Prometheus answers {status}: {body[:300]}") from error
        return found(series, step)

    async def copied(self, namespace: str, name: str, past: Recorded) -> bool:
        """Whether the canary got copies of requests in shadow.

        Raises:
            PrometheusError: Prometheus refuses or does not answer.
        """
        self.at, seconds = past.ended, int((past.ended - past.began).total_seconds()) + 1
        arm = f'namespace="{namespace}", model_deployment="{name}", revision="{past.canary}"'
        samples = await self.query(f"max(max_over_time({METRIC_SHADOW_COMPARED}{{{arm}}}[{seconds}s]))")
        return any(sample.value > 0.0 for sample in samples)

    async def share(self, namespace: str, name: str, revision: str) -> float | None:
        """The revision's share of the episodes opened in the minute before, 0 to 1; None without episodes."""
        select = f'{METRIC_EPISODES_OPENED}{{namespace="{namespace}", model_deployment="{name}"}}[1m]'
        samples = await self.query(f"sum by (revision) (increase({select}))")
        total = sum(sample.value for sample in samples)
        mine = sum(sample.value for sample in samples if sample.labels.get("revision") == revision)
        return mine / total if total > 0 else None


def resolution(last: timedelta) -> float:
    """Seconds between the moments that a time of this length is looked through at."""
    return max(STEP, last.total_seconds() / (POINTS * PIECES))


def pieces(end: float, seconds: float, step: float) -> Iterator[tuple[float, float]]:
    """First and last moment of each request for the `seconds` before `end`, oldest first, `step` apart."""
    first = end - seconds
    while first <= end:
        last = min(end, first + (POINTS - 1) * step)
        yield first, last
        first += POINTS * step


def found(series: Mapping[str, Sequence[float]], step: float) -> list[Recorded]:
    """Rollouts out of the moments (Unix time, each `step` seconds) at which each revision was there."""
    spells = [(first, last, revision) for revision, times in series.items() for first, last in _spells(times, step)]
    rollouts = []
    for first, last, revision in sorted(spells):
        others = [spell for spell in spells if spell[2] != revision and spell[0] < first and spell[1] >= first - step]
        if others:
            # Of several that were there already the one that had been there longest was stable.
            began = datetime.fromtimestamp(first - step, UTC)
            rollouts.append(Recorded(revision, min(others)[2], began, datetime.fromtimestamp(last, UTC)))
    return rollouts


def with_guests(rollouts: Sequence[Recorded], known: Collection[str]) -> list[Recorded]:
    """The rollouts with their guests: of the revisions `known` to be some, those that came while a canary was there. A
    rollout lasts as long as any of its arms."""
    result: list[Recorded] = []
    for one in rollouts:
        last = result[-1] if result else None
        if last and one.canary in known and one.canary != last.canary and one.began <= last.ended:
            result[-1] = replace(last, ended=max(last.ended, one.ended), guests=last.guests | {one.canary})
        else:
            result.append(one)
    return result


def _spells(times: Sequence[float], step: float) -> list[tuple[float, float]]:
    spells: list[tuple[float, float]] = []
    for moment in sorted(times):
        if spells and moment - spells[-1][1] <= 2.5 * step:
            spells[-1] = (spells[-1][0], moment)
        else:
            spells.append((moment, moment))
    return spells


def at_url(url: str) -> Ask:
    """Prometheus at a URL of the caller's."""
    pool = PoolManager(timeout=SECONDS, retries=False)

    def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
        try:
            answer = pool.request("GET", f"{url.rstrip('/')}/api/v1/{path}", fields=dict(form))
        except HTTPError as error:
            raise CommandError(f"--prometheus {url!r} does not answer: {error}") from error
        return answer.status, answer.data.decode("utf-8", "replace")

    return ask
