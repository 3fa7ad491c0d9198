"""Spans reach a collector with derived ids; a training's trace has its decisions, and a root with the result."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from learnloop_operator.core.counted_transitions import of_object
from learnloop_operator.core.plan import Notice
from learnloop_operator.reconcile.tracing import exporting
from testing.servers.otlp_receiver import Receiver

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BODY = {
    "metadata": {
        "uid": "u-1",
        "name": "t",
        "namespace": "ns",
        "creationTimestamp": "2026-03-01T11:00:00Z",
        "labels": {"learnloop.dev/learning-agent": "walker"},
    },
    "status": {"phase": "Training", "attempts": 1},
}


def finished(reason: str, ready: str) -> dict:
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": "the sentence"}
    return {"attempts": 1, "finishedAt": "2026-03-01T11:50:00Z", "conditions": [condition], "step": 1000}


@pytest.mark.parametrize(("reason", "ready", "failed"), [("Validated", "True", False), ("GatesFailed", "False", True)])
def test_a_training_has_a_span_for_its_verdict_and_a_root_from_its_creation(reason, ready, failed):
    receiver = Receiver().begin()
    tracer = exporting(receiver.url, {"k8s.namespace.name": "ns"}, {"authorization": "Bearer t"})
    notice = Notice("Warning" if failed else "Normal", reason, "x" * 2000)
    after = finished(reason, ready)
    tracer.decided("TrainingJob", BODY, after, (notice,), NOW, NOW + timedelta(seconds=5))
    tracer.decided("TrainingJob", {**BODY, "status": after}, after, (), NOW, NOW)
    tracer.close()
    decision, root = receiver.spans
    assert {decision["trace"], root["trace"]} == {of_object("TrainingJob", BODY)}
    assert (decision["name"], decision["parent"], root["parent"]) == (reason, root["id"], "")
    assert decision["ended"] - decision["began"] == 5_000_000_000
    assert decision["attributes"]["learnloop.decision"] == "x" * 1024
    assert root["attributes"]["cicd.pipeline.result"] == ("failure" if failed else "success")
    assert (root["failed"], root["attributes"]["gen_ai.agent.name"]) == (failed, "walker")
    assert root["ended"] - root["began"] == 3_605 * 1_000_000_000
    assert root["resource"]["k8s.namespace.name"] == "ns"
    assert receiver.headers[0]["authorization"] == "Bearer t"
    receiver.shutdown()


def test_the_operator_imports_no_opentelemetry_before_it_traces() -> None:
    code = (
        "import sys, learnloop_operator.__main__;"
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'google.protobuf'))])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert result.stdout.strip() == "[]"
