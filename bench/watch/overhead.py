"""What metrics and traces cost, on and off, in processor time: rounds with and without, in turn.

Traces: passes of the operator's own decisions over a rollout, alone; with a tracer that is switched off (none is
there); and with one that exports to a real receiver, its thread included. A real pass asks the API server too, so the
share of traces in it is smaller than told here.

Metrics: the data plane's processor time for a scrape every five seconds, as a share of what it needs for the 100
trajectories a second of `bench-pipeline`.
"""

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.pipeline.chaos import register
from bench.pipeline.latency import trajectory
from bench.pipeline.world import pipeline
from learnloop_common.telemetry.otlp_exporter import OtlpExporter
from learnloop_operator.adapters.tracer import Tracer
from testing.servers.data_plane_process import Product
from testing.simulation.rollout_cluster import BAD, BETTER, Cluster

MOST = 0.03
EVERY_SECONDS = 5.0
"""Between two scrapes, as the chart sets it."""
RATE = 100
"""Trajectories a second, as in `bench-pipeline`."""
TRAJECTORIES, SCRAPES = 400, 40


class Passes(Cluster):
    """A simulated cluster that keeps what each pass found, wrote, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[Any, dict[str, Any], dict[str, Any]]] = []

    def _status(self, status: dict[str, Any]) -> None:
        before = self.status
        super()._status(status)
        self.looks.append((self.now, before, status))


def measured(rounds: int) -> dict[str, Any]:
    """Figures of this part, printed for people as well; `missed` names the goals that were."""
    figures = _traces(rounds) | _metrics(rounds)
    print(
        f"traces: {figures['traces_on']:.2%} of a decision's processor time on, {figures['traces_off']:.2%} off; "
        f"metrics: {figures['metrics_scraped']:.2%} of what 100 trajectories a second take"
    )
    missed = [name for name in ("traces_on", "metrics_scraped") if figures[name] > MOST]
    missed += ["traces_off"] if figures["traces_off"] > 0.001 else []
    return figures | {"missed": missed}


def _traces(rounds: int) -> dict[str, Any]:
    on, off = [], []
    with _receiver() as (endpoint, file):
        for number in range(rounds + 1):
            began = time.process_time()
            cluster = Passes()
            cluster.run(10)
            cluster.promote(1, BETTER)
            cluster.run(40)
            cluster.wish(2, BAD)
            cluster.settle()
            decided = time.process_time() - began
            body = {"metadata": {"uid": "u", "name": "md", "namespace": "ns"}, "spec": cluster.spec}
            without, with_it = _seen(cluster, body, None), _seen(cluster, body, endpoint)
            if number:  # the first one loads protobuf, once in the life of a process
                off.append(without / decided)
                on.append(with_it / decided)
        spans = len(file.read_text().splitlines())
    return {
        "traces_on": statistics.median(on),
        "traces_off": statistics.median(off),
        "trace_spans_received": spans,
        "passes": len(cluster.looks),
    }


def _seen(cluster: Passes, body: dict[str, Any], endpoint: str | None) -> float:
    """Processor seconds, of all threads, that tracing these passes takes."""
    began = time.process_time()
    exporter = OtlpExporter(endpoint, {"service.name": "bench"}) if endpoint else None
    tracer = Tracer(exporter, lambda _, __: None) if exporter else None
    for now, before, after in cluster.looks:
        if tracer is not None:
            tracer.saw("ModelDeployment", body, before, after, now)
    if exporter is not None:
        exporter.close(10)
    return time.process_time() - began


@contextmanager
def _receiver() -> Iterator[tuple[str, Path]]:
    with tempfile.TemporaryDirectory(prefix="learnloop-traces-") as name:
        file = Path(name) / "received"
        command = [sys.executable, "-m", "testing.servers.otlp_receiver", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), file
        finally:
            process.kill()
            process.communicate()


def _metrics(rounds: int) -> dict[str, Any]:
    stored, asked = [], []
    with pipeline() as (product, _, _):
        register(product)
        _stored(product, 0)
        for number in range(1, rounds + 1):
            stored.append(_stored(product, number * TRAJECTORIES) / TRAJECTORIES)
            asked.append(_scraped(product) / SCRAPES)
    trajectory_s, scrape_s = statistics.median(stored), statistics.median(asked)
    return {
        "metrics_scraped": scrape_s / EVERY_SECONDS / (RATE * trajectory_s),
        "scrape_cpu_ms": round(scrape_s * 1000, 2),
        "trajectory_cpu_ms": round(trajectory_s * 1000, 3),
        "rounds": rounds,
    }


def _stored(product: Product, first: int) -> float:
    """Processor seconds of the data plane for so many trajectories."""
    began = product.cpu_seconds()
    for number in range(first, first + TRAJECTORIES):
        product.post("/api/v1/trajectories", trajectory(number))
    return product.cpu_seconds() - began


def _scraped(product: Product) -> float:
    """Processor seconds of the data plane for so many scrapes."""
    began = product.cpu_seconds()
    for _ in range(SCRAPES):
        with urllib.request.urlopen(f"http://127.0.0.1:{product.port}/metrics", timeout=30) as answer:
            answer.read()
    return product.cpu_seconds() - began
