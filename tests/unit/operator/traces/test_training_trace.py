"""The trace of a training: its ids can be derived again, each step has its times, the root comes last."""

from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_operator.core import traces as ids
from learnloop_operator.core.traces import Span, ended
from learnloop_operator.reconcile.tracer import Tracer

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BODY = {
    "metadata": {
        "uid": "u-1",
        "name": "t",
        "namespace": "ns",
        "creationTimestamp": "2026-03-01T11:00:00Z",
        "labels": {"learnloop.dev/learning-agent": "walker"},
    },
    "spec": {"algorithm": "ppo"},
}
WORKING = {"phase": "Training", "attempts": 1, "attemptStartedAt": "2026-03-01T11:10:00Z", "step": 5}


class Kept:
    """An exporter that keeps."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def send(self, spans: Any) -> None:
        self.spans += spans


def end(reason: str, ready: str, trained: str) -> dict[str, Any]:
    conditions = [
        {"type": "Ready", "status": ready, "reason": reason, "message": "the sentence"},
        {"type": "Trained", "status": trained},
    ]
    gates = [{"name": "better", "passed": ready == "True", "message": "by 3"}]
    return WORKING | {"finishedAt": "2026-03-01T11:50:00Z", "conditions": conditions, "gates": gates, "step": 1000}


def test_a_run_that_passed_has_its_wait_its_attempt_and_a_root_with_its_judgements() -> None:
    wait, attempt, root = ended(BODY, WORKING, end("Validated", "True", "True"), NOW)
    assert [span.name for span in (wait, attempt, root)] == ["wait", "attempt", "RUN training"]
    assert wait.parent == attempt.parent == root.id == ids.root(ids.training(BODY))
    assert (root.began, root.ended) == (NOW - timedelta(hours=1), NOW - timedelta(minutes=10))
    assert root.attributes["cicd.pipeline.result"] == "success"
    assert root.attributes["gen_ai.agent.name"] == "walker"
    assert [(item.name, item.passed) for item in root.evaluations] == [("better", True)]


def test_a_refused_proof_is_a_failure_and_a_run_without_a_model_an_error() -> None:
    refused = ended(BODY, WORKING, end("GatesFailed", "False", "True"), NOW)
    broken = ended(BODY, WORKING, end("AttemptsExhausted", "False", "False"), NOW)
    assert [refused[-1].attributes["cicd.pipeline.result"], refused[1].failed] == ["failure", ""]
    assert [broken[-1].attributes["cicd.pipeline.result"], broken[1].failed] == ["error", "the sentence"]
    assert broken[-1].attributes["error.type"] == "AttemptsExhausted"


def test_an_attempt_that_was_ended_free_of_charge_ends_when_the_status_says() -> None:
    stopped = {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-03-01T11:20:00Z"}
    after = WORKING | {"phase": "Restarting", "conditions": [stopped]}
    (attempt,) = [span for span in ended(BODY, WORKING, after, NOW) if span.name == "attempt"]
    assert (attempt.ended.minute, attempt.failed) == (20, "")
    done = end("Validated", "True", "True")
    assert [span.name for span in ended(BODY, after, done, NOW)] == ["wait", "RUN training"]


def test_one_process_sends_each_step_once_and_a_new_leader_the_same_root() -> None:
    first, second = Kept(), Kept()
    done = end("Validated", "True", "True")
    tracer = Tracer(first, lambda _, __: None)
    for before, after in ((WORKING, WORKING), (WORKING, done), (done, done)):
        tracer.saw("TrainingJob", BODY, before, after, NOW)
    assert [span.name for span in first.spans] == ["wait", "attempt", "RUN training"]
    Tracer(second, lambda _, __: None).saw("TrainingJob", BODY, done, done, NOW + timedelta(minutes=5))
    assert second.spans[-1] == first.spans[-1]
    late = Kept()
    Tracer(late, lambda _, __: None).saw("TrainingJob", BODY, done, done, NOW + timedelta(hours=2))
    assert late.spans == []


def test_a_training_that_is_deleted_ends_its_trace() -> None:
    kept = Kept()
    tracer = Tracer(kept, lambda _, __: None)
    tracer.saw("TrainingJob", BODY, {}, WORKING, NOW)
    for _ in range(2):
        tracer.gone("TrainingJob", "ns", "t", NOW)
    assert [span.name for span in kept.spans] == ["wait", "RUN training"]
    assert kept.spans[-1].attributes["cicd.pipeline.result"] == "cancellation"
