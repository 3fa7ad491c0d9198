"""The operator's and the data plane's own lines, by the chart's own configurations, into a real Loki and out again."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from learnloop_common import telemetry
from learnloop_dataplane.audit import chain as sealer
from learnloop_dataplane.audit.chain import GENESIS, Entry, Sealed, seal
from learnloop_operator.core.counted_transitions import of_object
from learnloop_operator.core.plan import BaseSnapshot, Call, Plan
from learnloop_operator.kube.errors import Unavailable
from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.reconcile.work_queue import ObjectKey, Runtime
from testing.logs.collector import collecting
from testing.logs.loki_server import Line, Loki, loki, until_true
from testing.logs.node_logs import NodeLogs

WALKER = {
    "metadata": {"name": "walker", "namespace": "team-a", "uid": "7c0b"},
    "status": {"rolloutStartedAt": "2026-01-31T12:00:00Z", "canary": {"revision": "3f9a2c81"}},
}
TRACE = of_object("ModelDeployment", WALKER)
SECONDS = 60.0
EVERYTHING = '{app=~".+"}'
OPERATOR, DATA = "learnloop-system_learnloop-operator-7d9f", "learnloop-system_learnloop-data-5b8c"
LONG = "x" * 40_000
MANY = {f"figure-{number}": number for number in range(300)}


class Failing:
    """A controller whose passes fail after they have seen the object."""

    kind = MODEL_DEPLOYMENT

    async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
        return BaseSnapshot(now=datetime.now(UTC), object=WALKER)

    def decide(self, snapshot: BaseSnapshot) -> Plan:
        raise Unavailable("the API server is away")

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        return ()


class Leading:
    """Always."""

    def guard(self) -> None:
        return


async def operator_lines() -> list[str]:
    """Lines of the operator's standard error about a failed pass."""
    root = logging.getLogger()
    before, level, stream = list(root.handlers), root.level, io.StringIO()
    telemetry.set_up("INFO", "json", "", stream)
    metrics = OperatorMetrics()
    try:
        runtime = Runtime([Failing()], None, None, Leading(), metrics, workers=1, resync_seconds=60)
        await runtime.one_pass(ObjectKey(MODEL_DEPLOYMENT.kind, "team-a", "walker"))
        runtime.queue.close()
    finally:
        root.handlers, root.level = before, level
    return stream.getvalue().splitlines()


def chain() -> list[Sealed]:
    """The records that the data plane seals, the last one with many details."""
    fields = [
        ("model.deployed", "model-deployment/walker", {"revision": "3f9a2c81"}),
        ("model.rolled_back", "model-deployment/walker", {"revision": "3f9a2c81", "reason": "ReturnWorse"}),
        ("training.ended", "training-job/walker-7", {"gates": ["minReturn", "parity"], "figures": MANY}),
    ]
    sealed: list[Sealed] = []
    for number, (action, subject, detail) in enumerate(fields, start=1):
        entry = Entry("team-a", number, datetime.now(UTC), "sa", action, subject, "done", detail)
        sealed.append(seal(sealed[-1].hash if sealed else GENESIS, entry))
    return sealed


@dataclass
class Shipped:
    """A Loki that has everything; and what is needed to send it again."""

    loki: Loki
    collector: dict[str, Any]
    node: NodeLogs
    folder: Path
    written: list[str]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> NodeLogs:
    return NodeLogs(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def shipped(shipping, node: NodeLogs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    lines = asyncio.run(operator_lines())
    node.write(OPERATOR, "operator", *lines)
    node.write(DATA, "data", *map(sealer.line_of, chain()), stream="stdout")
    node.write(DATA, "data", json.dumps({"level": "warning", "message": LONG}), "{no JSON, whatever it looks like")
    node.write("learnloop-system_learnloop-postgres-0", "postgres", "LOG:  checkpoint complete")
    node.write("team-a_learnloop-operator-evil", "operator", json.dumps({"app": "operator", "message": "forged"}))
    folder = tmp_path_factory.mktemp("loki")
    with loki(shipping()["loki.yaml"], folder) as server:
        collector = shipping(endpoint=f"{server.url}/otlp")["collector.yaml"]
        shipment = Shipped(server, collector, node, folder, lines)
        with collecting(collector, node.folder, folder):
            wanted = len(lines) + 3 + 2 + 1

            def there() -> bool:
                return len(server.lines(EVERYTHING)) >= wanted

            until_true(there, SECONDS, lambda: f"{server.lines(EVERYTHING)}\n{log_of(folder)}")
        yield shipment


def log_of(folder: Path) -> str:
    return (folder / "collector.log").read_text()[-3000:]


def one(lines: list[Line]) -> Line:
    assert len(lines) == 1, lines
    return lines[0]


def test_a_line_of_the_operator_is_found_by_trace_object_and_revision(shipped: Shipped) -> None:
    for selector in (
        f'trace_id="{TRACE}"',
        'object="ModelDeployment team-a/walker"',
        'revision="3f9a2c81" | level="warning"',
    ):
        line = one(shipped.loki.lines(f'{{app="operator", stream="log"}} | {selector}'))
        assert line.text in shipped.written, "the line itself is as it was written"
        assert line.labels["namespace"] == "learnloop-system"
        assert "the API server is away" in line.text


def test_a_rollback_is_found_as_audit(shipped: Shipped) -> None:
    taken = one(shipped.loki.lines('{stream="audit", namespace="team-a"} | action="model.rolled_back"'))
    assert json.loads(taken.text)["detail"]["reason"] == "ReturnWorse"
    assert taken.labels["revision"] == "3f9a2c81", "found as the operator's lines of that model are"
    assert taken.labels["app"] == "learnloop-data"


def test_a_record_with_hundreds_of_details_arrives_too(shipped: Shipped) -> None:
    line = one(shipped.loki.lines('{stream="audit"} | action="training.ended"'))
    assert json.loads(line.text)["detail"]["figures"] == MANY


def test_long_lines_arrive_whole_and_lines_that_are_no_json_as_they_are(shipped: Shipped) -> None:
    texts = [line.text for line in shipped.loki.lines('{app="data"}')]
    assert {json.dumps({"level": "warning", "message": LONG}), "{no JSON, whatever it looks like"} == set(texts)
    assert one(shipped.loki.lines('{app="postgres"}')).text == "LOG:  checkpoint complete"


def test_streams_are_told_apart_by_three_labels_alone(shipped: Shipped) -> None:
    assert shipped.loki.label_names() == {"app", "stream", "namespace"}


def test_nothing_of_another_namespace_is_sent_under_the_releases_name(shipped: Shipped) -> None:
    assert "forged" not in str(shipped.loki.lines(EVERYTHING))


def test_lines_are_kept_for_thirty_days_and_then_deleted(shipped: Shipped) -> None:
    running = shipped.loki.configuration()
    assert running["limits_config"]["retention_period"] in ("30d", "720h", "720h0m0s")
    assert running["compactor"]["retention_enabled"] is True
    assert running["compactor"]["delete_request_store"] == "filesystem"


def test_a_collector_that_begins_anew_doubles_nothing(shipped: Shipped) -> None:
    before = len(shipped.loki.lines(EVERYTHING))
    with collecting(shipped.collector, shipped.node.folder, shipped.folder):
        shipped.node.write(OPERATOR, "operator", json.dumps({"level": "info", "message": "the last one"}))
        newest = '{app="operator"} |= "the last one"'
        until_true(lambda: bool(shipped.loki.lines(newest)), SECONDS, lambda: log_of(shipped.folder))
    assert len(shipped.loki.lines(EVERYTHING)) == before + 1
