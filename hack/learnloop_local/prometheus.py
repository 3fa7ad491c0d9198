"""The operator's Prometheus: counters of policy servers, scraped each second, and the PromQL it asks by.

The functions and operators here are those of the operator's own queries, with Prometheus' arithmetic; any other is
refused by name.
"""

import asyncio
import math
import operator
import re
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import aiohttp
import promql_parser as promql
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from learnloop_api import names
from learnloop_local.addresses import LOOPBACK, is_ready
from learnloop_local.store import Store
from learnloop_operator.kube import kinds

EVERY, RETENTION_SECONDS, LOOKBACK = 1.0, 3600.0, 300.0
PREFIX = "learnloop_"
NAME = "__name__"
Labels = tuple[tuple[str, str], ...]
Row = tuple[dict[str, str], float]
COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
COUNTED: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": lambda a, b: a / b if b else math.nan,
}  # fmt: skip
SUMMED: Mapping[str, Callable[[list[float]], float]] = {"sum": sum, "min": min, "max": max, "count": len}


class Series:
    """Samples of the last hour; a `stale` one has no present value."""

    def __init__(self) -> None:
        self.times, self.values, self.stale = array("d"), array("d"), False

    def add(self, now: float, value: float) -> None:
        self.times.append(now)
        self.values.append(value)
        self.stale = False
        if self.times[0] < now - 2 * RETENTION_SECONDS:
            old = sum(at < now - RETENTION_SECONDS for at in self.times)
            del self.times[:old], self.values[:old]

    def within(self, after: float, until: float) -> list[tuple[float, float]]:
        chosen = slice(bisect_right(self.times, after), bisect_right(self.times, until))
        return list(zip(self.times[chosen], self.values[chosen], strict=True))


class Prometheus:
    """`scrape` and `serve` until they are cancelled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._series: dict[Labels, Series] = {}

    async def scrape(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=EVERY)) as session:
            while True:
                began = time.monotonic()
                pods = [pod for pod in self._store.every(kinds.POD) if is_ready(pod)]
                texts = await asyncio.gather(*(_metrics(session, pod) for pod in pods))
                self.take({pod["metadata"]["name"]: (pod, text) for pod, text in zip(pods, texts, strict=True)})
                await asyncio.sleep(max(0.0, EVERY - (time.monotonic() - began)))

    def take(self, scraped: Mapping[str, tuple[Mapping[str, Any], str]]) -> None:
        """One scrape of all pods. Series that are in none of the answers are stale."""
        now = time.time()
        for series in self._series.values():
            series.stale = True
        for pod, text in scraped.values():
            target = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
            target["instance"] = pod["metadata"]["name"]
            lines = "\n".join(line for line in text.splitlines() if line.startswith(PREFIX))
            for family in text_string_to_metric_families(lines):
                for sample in family.samples:
                    labels = tuple(sorted({**sample.labels, **target, NAME: sample.name}.items()))
                    self._series.setdefault(labels, Series()).add(now, sample.value)

    async def answer(self, request: web.Request) -> web.Response:
        """`POST /api/v1/query`"""
        query = str((await request.post()).get("query", ""))
        try:
            rows, now = self.rows(query), time.time()
        except (ValueError, KeyError, TypeError) as error:
            return web.json_response({"status": "error", "errorType": "bad_data", "error": str(error)}, status=400)
        result = [{"metric": labels, "value": [now, repr(value)]} for labels, value in rows]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    def rows(self, query: str) -> list[Row]:
        """The vector that a query gives now."""
        result = self._value(promql.parse(query), time.time())
        return result if isinstance(result, list) else [({}, float(result))]

    def _value(self, node: Any, now: float) -> Any:
        match node:
            case promql.NumberLiteral() | promql.StringLiteral():
                return node.val
            case promql.ParenExpr():
                return self._value(node.expr, now)
            case promql.VectorSelector():
                return [(labels, value) for labels, _, value in self._present(node, now)]
            case promql.AggregateExpr():
                return _summed(str(node.op), node.modifier, self._value(node.expr, now))
            case promql.BinaryExpr():
                return _both(node, self._value(node.lhs, now), self._value(node.rhs, now))
            case promql.Call():
                return self._call(node.func.name, node.args, now)
        raise ValueError(f"{type(node).__name__}: this machine's Prometheus does not know it")

    def _present(self, node: Any, now: float) -> Iterable[tuple[dict[str, str], float, float]]:
        for labels, series in self._chosen(node):
            if not series.stale and (samples := series.within(now - LOOKBACK, now)):
                yield labels, *samples[-1]

    def _chosen(self, node: Any) -> Iterable[tuple[dict[str, str], Series]]:
        matchers = [(item.name, str(item.op).rpartition(".")[2], item.value) for item in node.matchers.matchers]
        for key, series in self._series.items():
            labels = dict(key) if (NAME, node.name) in key else {}
            if labels and all(_fits(labels.get(name, ""), op, text) for name, op, text in matchers):
                yield labels, series

    def _call(self, name: str, arguments: list[Any], now: float) -> Any:
        if name == "time":
            return now
        if name == "vector":
            return [({}, float(self._value(arguments[0], now)))]
        if name == "timestamp":
            return [(_bare(labels), at) for labels, at, _ in self._present(arguments[0], now)]
        if name == "label_replace":
            target, text, source, pattern = (self._value(item, now) for item in arguments[1:])
            if source or pattern:
                raise ValueError("label_replace: this machine's Prometheus sets a label, and copies none")
            return [({**labels, target: text}, value) for labels, value in self._value(arguments[0], now)]
        if name not in ("last_over_time", "increase", "resets"):
            raise ValueError(f"{name}: this machine's Prometheus does not know it")
        selector, span = arguments[0].vector_selector, arguments[0].range.total_seconds()
        until = now - (selector.offset.total_seconds() if selector.offset else 0.0)
        rows: list[Row] = []
        for labels, series in self._chosen(selector):
            samples = series.within(until - span, until)
            if name == "last_over_time" and samples:
                rows.append((labels, samples[-1][1]))
            elif name == "resets" and samples:
                rows.append(
                    (_bare(labels), float(sum(after < before for (_, before), (_, after) in pairwise(samples))))
                )
            elif name == "increase" and len(samples) > 1:
                rows.append((_bare(labels), increase(samples, until - span, until)))
        return rows


def increase(samples: list[tuple[float, float]], since: float, until: float) -> float:
    """Growth of a counter over the window, extrapolated to its ends as Prometheus does: by half an interval at most
    where no sample is near, and never below zero."""
    values = [value for _, value in samples]
    grown = values[-1] - values[0] + sum(before for before, after in pairwise(values) if after < before)
    sampled = samples[-1][0] - samples[0][0]
    interval = sampled / (len(samples) - 1)
    before, after = samples[0][0] - since, until - samples[-1][0]
    before = interval / 2 if before >= 1.1 * interval else before
    after = interval / 2 if after >= 1.1 * interval else after
    if grown > 0 and values[0] >= 0:
        before = min(before, sampled * values[0] / grown)
    return grown * (sampled + before + after) / sampled


def _fits(value: str, op: str, text: str) -> bool:
    if op in ("Equal", "NotEqual"):
        return (value == text) == (op == "Equal")
    return (re.fullmatch(text, value) is not None) == (op == "Re")


def _bare(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != NAME}


def _summed(op: str, modifier: Any, rows: list[Row]) -> list[Row]:
    if op not in SUMMED or (modifier is not None and "By" not in str(modifier.type)):
        raise ValueError(f"{op}: this machine's Prometheus sums by labels: {', '.join(SUMMED)}")
    groups: dict[Labels, list[float]] = {}
    for labels, value in rows:
        by = modifier.labels if modifier is not None else ()
        groups.setdefault(tuple((key, labels[key]) for key in by if key in labels), []).append(value)
    return [(dict(key), float(SUMMED[op](values))) for key, values in groups.items()]


def _both(node: Any, left: Any, right: Any) -> Any:
    op, matching = str(node.op), node.modifier.matching if node.modifier is not None else None

    def mark(labels: Mapping[str, str]) -> Labels:
        """The key that matches rows of both sides."""
        bare = _bare(labels)
        if matching is not None:
            included = "Include" in str(matching.type)
            bare = {key: value for key, value in bare.items() if (key in matching.labels) == included}
        return tuple(sorted(bare.items()))

    if op in ("and", "unless", "or"):
        other = {mark(labels) for labels, _ in right}
        if op == "or":
            marks = {mark(labels) for labels, _ in left}
            return [*left, *(row for row in right if mark(row[0]) not in marks)]
        return [row for row in left if (mark(row[0]) in other) == (op == "and")]
    compute = COMPARED.get(op) or COUNTED.get(op)
    if compute is None:
        raise ValueError(f"{op}: this machine's Prometheus does not know it")
    if not isinstance(left, list) and not isinstance(right, list):
        return float(compute(left, right))
    if not isinstance(left, list):
        pairs = [((labels, left), (labels, value), value) for labels, value in right]
    elif not isinstance(right, list):
        pairs = [((labels, value), (labels, right), value) for labels, value in left]
    else:
        others = {mark(labels): (labels, value) for labels, value in right}
        pairs = [(row, others[mark(row[0])], row[1]) for row in left if mark(row[0]) in others]
    if op in COMPARED:
        return [(ours[0], shown) for ours, peer, shown in pairs if compute(ours[1], peer[1])]
    return [(_bare(ours[0]), float(compute(ours[1], peer[1]))) for ours, peer, _ in pairs]


async def _metrics(session: aiohttp.ClientSession, pod: Mapping[str, Any]) -> str:
    notes = pod["metadata"].get("annotations") or {}
    if notes.get("prometheus.io/scrape") != "true":
        return ""
    try:
        async with session.get(f"http://{LOOPBACK}:{notes[names.ANNOTATION_PORT]}/metrics") as answer:
            return await answer.text() if answer.status == 200 else ""
    except (aiohttp.ClientError, OSError, TimeoutError):
        return ""
