"""The operator's own queries at a moment of the past, and the rollouts that Prometheus has on record.

The address is the caller's: a URL, or the chart's Prometheus through the API server's service proxy, with the caller's
kubeconfig and the right to `get` on `services/proxy`.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from learnloop_api.names import METRIC_EPISODES_OPENED, METRIC_SERVER_STARTED, METRIC_SHADOW_COMPARED
from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.recorded_rollouts import PodSamples, RecordedRollout, recorded
from learnloop_operator.prometheus.client import Prometheus, PrometheusUnreachable

AskPrometheus = Callable[[str, Mapping[str, str]], tuple[int, str]]
"""One GET: the path behind /api/v1/ and its parameters → status and body. Raises CommandError."""
POINTS = 10_000
"""Prometheus answers at most 11,000 points of a series; longer times are asked for in pieces."""
PIECES = 100
STEP = 5.0
"""Seconds between two moments asked for: nothing is decided in less (windows.SHORTEST)."""
SECONDS = 10.0


class PrometheusHistory(Prometheus):
    """The operator's Prometheus client at the moment `at`."""

    def __init__(self, ask: AskPrometheus) -> None:
        super().__init__("history")
        self._ask = ask
        self.at = datetime.now(UTC)

    async def _post(self, promql: str, namespace: str) -> tuple[int, Any]:
        form = {"query": promql, "time": f"{self.at.timestamp():.3f}"}
        try:
            status, body = await asyncio.to_thread(self._ask, "query", form)
            return status, json.loads(body)
        except CommandError as error:
            raise PrometheusUnreachable(str(error)) from error
        except ValueError:
            return status, None

    def rollouts(self, namespace: str, name: str, last: timedelta) -> list[RecordedRollout]:
        """Every time a revision appeared next to another one, oldest first.

        Raises:
            CommandError: Prometheus refuses or does not answer.
        """
        step, times = resolution(last), dict[tuple[str, str], set[float]]()
        servers = f'{METRIC_SERVER_STARTED}{{namespace="{namespace}", model_deployment="{name}"}}'
        # By the time of a sample, as Prometheus returns the last one of a deleted pod for minutes.
        scraped = f"max by (revision, pod) (timestamp({servers}))"
        for start, end in pieces(self.at.timestamp(), last.total_seconds(), step):
            form = {"query": scraped, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
            for revision, pod, values in self._series("query_range", form):
                times.setdefault((revision, pod), set()).update(values)
        pods = [PodSamples(revision, pod, sorted(moments)) for (revision, pod), moments in times.items() if moments]
        if not pods:
            return []
        born = {
            "query": f"min by (revision) ({servers})",
            "time": f"{min(pod.times[0] for pod in pods) + step:.3f}",
        }
        births = {revision: values[0] for revision, _, values in self._series("query", born)}
        return recorded(pods, step, births)

    def _series(self, path: str, form: Mapping[str, str]) -> list[tuple[str, str, list[float]]]:
        """Revision, pod (empty without the label) and finite values of each series in the answer."""
        status, body = self._ask(path, form)
        series = []
        try:
            answer = json.loads(body)
            if answer.get("warnings"):
                raise CommandError(f"Prometheus answers in part: {answer['warnings']}")
            for row in answer["data"]["result"]:
                points = row["values"] if path == "query_range" else [row["value"]]
                values = [value for value in (float(point[1]) for point in points) if isfinite(value)]
                if values:
                    series.append((str(row["metric"]["revision"]), str(row["metric"].get("pod", "")), values))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise CommandError(f"Prometheus answers {status}: {body[:300]}") from error
        return series

    async def copied(self, namespace: str, name: str, past: RecordedRollout) -> bool:
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
        own = sum(sample.value for sample in samples if sample.labels.get("revision") == revision)
        return own / total if total > 0 else None


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


def at_url(url: str) -> AskPrometheus:
    """Prometheus at a URL of the caller's."""
    pool = PoolManager(timeout=SECONDS, retries=False)

    def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
        try:
            answer = pool.request("GET", f"{url.rstrip('/')}/api/v1/{path}", fields=dict(form))
        except HTTPError as error:
            raise CommandError(f"--prometheus {url!r} does not answer: {error}") from error
        return answer.status, answer.data.decode("utf-8", "replace")

    return ask
