"""Client of Prometheus' instant queries (HTTP API v1). Every way to get no number has a type and a sentence."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from learnloop_operator.http_session import HttpSession, TooLarge, read_bounded

MAX_ANSWER = 1024 * 1024


class PrometheusError(Exception):
    """No answer to use."""


class PrometheusUnreachable(PrometheusError):
    """Not configured, no connection, or no answer in time."""


class PrometheusRefused(PrometheusError):
    """Prometheus itself said no: a bad query, too many samples, a timeout inside."""


class PrometheusBadAnswer(PrometheusError):
    """The answer is not Prometheus', or a part of one: of several stores behind an address some did not answer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series' value now; it may be NaN or infinite, which the caller interprets."""

    labels: Mapping[str, str]
    value: float


class Prometheus(HttpSession):
    """Every query takes at most `timeout` seconds."""

    def __init__(self, url: str, timeout: float = 5.0) -> None:
        super().__init__(timeout)
        self.url = url.rstrip("/")

    async def query(self, promql: str, namespace: str = "") -> list[Sample]:
        """Value of every series the query yields now. `namespace`: a prom-label-proxy keeps the query to its series.

        Raises:
            PrometheusUnreachable, PrometheusRefused, PrometheusBadAnswer: hold.
        """
        if not self.url:
            raise PrometheusUnreachable("no Prometheus is configured: set LEARNLOOP_PROMETHEUS_URL on the operator")
        status, body = await self._post(promql, namespace)
        if not isinstance(body, dict) or body.get("status") not in ("success", "error"):
            raise PrometheusBadAnswer(f"{self.url} answered {status} and not as a Prometheus does")
        if body["status"] == "error" or status >= 400:
            raise PrometheusRefused(f"Prometheus: {body.get('errorType')}: {str(body.get('error'))[:300]}")
        if body.get("warnings"):
            raise PrometheusBadAnswer(f"{self.url} answered in part: {str(body['warnings'])[:300]}")
        try:
            return _samples(body["data"])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise PrometheusBadAnswer(f"{self.url} answered with data of no known form") from error

    async def _post(self, promql: str, namespace: str) -> tuple[int, Any]:
        form = {"query": promql, "timeout": f"{self._seconds:g}s"}
        url, within = f"{self.url}/api/v1/query", {"namespace": namespace} if namespace else {}
        try:
            async with self.session.post(url, params=within, data=form, allow_redirects=False) as response:
                content = await read_bounded(response, MAX_ANSWER)
                status = response.status
        except TimeoutError as error:
            raise PrometheusUnreachable(f"Prometheus gave no answer within {self._seconds:g} s") from error
        except (aiohttp.ClientError, TooLarge, OSError) as error:
            reason = str(error) or type(error).__name__
            raise PrometheusUnreachable(f"Prometheus does not answer: {reason}") from error
        try:
            return status, json.loads(content)
        except ValueError:
            return status, None


def _samples(data: Mapping[str, Any]) -> list[Sample]:
    if data["resultType"] == "scalar":
        rows: list[tuple[Mapping[str, str], Any]] = [({}, data["result"])]
    elif data["resultType"] == "vector":
        rows = [(row["metric"], row["value"]) for row in data["result"]]
    else:
        raise ValueError(data["resultType"])
    return [Sample(dict(labels), float(value[1])) for labels, value in rows]
