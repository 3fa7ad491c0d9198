"""Leaders are killed at each step of two rollouts, with SIGKILL, before what they saw has left them."""

import json
import subprocess
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

from testing.simulation.rollout_cluster import BAD, BETTER, STEPS, Cluster

TELLING = ("phase", "step", "rolloutStartedAt", "promotedAt", "blockedRevisions")


class Recorded(Cluster):
    """Keeps every pass whose status says something else than the one before."""

    def __init__(self) -> None:
        super().__init__([STEPS[0], STEPS[-1]], keep=10)
        self.passes_seen: list[tuple[dict[str, Any], dict[str, Any], datetime]] = []

    def _status(self, status: dict[str, Any]) -> None:
        before = self.status
        super()._status(status)
        if any(before.get(field) != status.get(field) for field in TELLING):
            self.passes_seen.append((before, status, self.now))


class Leader:
    """One process."""

    def __init__(self, endpoint: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testing.operators.tracing_leader", endpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sees(self, body: dict[str, Any], before: dict[str, Any], after: dict[str, Any], now: datetime) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None  # noqa: PT018
        told = {"kind": "ModelDeployment", "body": body, "before": before, "after": after, "now": now.isoformat()}
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "seen\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        self.process.communicate(timeout=30)


def test_whoever_is_killed_each_rollout_has_one_root_and_no_orphans(tmp_path: Path) -> None:
    cluster = Recorded()
    cluster.run(10)
    cluster.promote(1, BETTER)
    cluster.run(40)
    cluster.wish(2, BAD)
    cluster.settle()
    body = {"metadata": {"uid": "u", "name": "md", "namespace": "ns"}, "spec": cluster.spec}
    received = tmp_path / "received"
    server = subprocess.Popen(
        [sys.executable, "-m", "testing.servers.otlp_receiver", str(received)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        endpoint = server.stdout.readline().strip()
        for before, after, now in cluster.passes_seen:
            victim, next_one = Leader(endpoint), Leader(endpoint)
            victim.sees(body, before, after, now)
            victim.kill()
            next_one.sees(body, after, after, now)
            next_one.end()  # it lives long enough to send, however loaded the machine is
    finally:
        server.kill()
        server.communicate()
    spans = [item for item in map(json.loads, received.read_text().splitlines()) if item["what"] == "span"]
    traces = defaultdict[str, list[dict[str, Any]]](list)
    for span in spans:
        traces[span["trace"]].append(span)
    assert len(cluster.passes_seen) >= 6
    assert len(traces) == 2
    for trace in traces.values():
        roots = {span["id"] for span in trace if not span["parent"]}
        assert len(roots) == 1
        assert {span["parent"] for span in trace if span["parent"]} <= roots
    results = {span["trace"]: span["told"]["cicd.pipeline.result"] for span in spans if not span["parent"]}
    assert list(results.values()) == ["success", "failure"]
