"""The audit log: one JSON object a line for each decision, and a counter."""

import json

import pytest

from learnloop_operator.metrics import OperatorMetrics
from learnloop_operator.reconcile.apply_plan import AuditLog, to_standard_output
from learnloop_operator.reconcile.apply_plan import audit_log as log


def test_a_decision_is_one_line_of_json_on_standard_output_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    metrics, before = OperatorMetrics(), list(log.handlers)
    entry = {
        "kind": "ModelDeployment",
        "namespace": "ns",
        "name": "x",
        "verb": "abort",
        "by": "al\nice",
        "outcome": "obeyed",
    }
    try:
        to_standard_output()
        AuditLog(metrics.decisions).record(entry)
    finally:
        log.handlers, log.propagate = before, True
    told = capsys.readouterr()
    assert json.loads(told.out) == {"app": "learnloop-operator", "stream": "audit", **entry}
    assert told.out.count("\n") == 1
    assert told.err == ""
    labels = {"kind": "ModelDeployment", "verb": "abort", "outcome": "obeyed"}
    assert metrics.registry.get_sample_value("learnloop_decisions_total", labels) == 1.0
