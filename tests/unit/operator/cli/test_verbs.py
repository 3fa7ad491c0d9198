"""The verbs against objects as the API server gives them: what they say, what they write, what they refuse."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from learnloop_api.names import ANNOTATION_ABORT, ANNOTATION_APPROVE, ANNOTATION_RETRY, ANNOTATION_TRAIN
from learnloop_operator.cli import abort, approve, main, retry, status, trace, train, why
from learnloop_operator.cli.errors import CommandError

SHA = "ab" * 32
ARM = {"revision": "aaaaaaaa", "uri": "https://m/1", "sha256": SHA, "episodes": 60, "meanReturn": 487.25}
OLD = {"revision": "bbbbbbbb", "uri": "uniform://discrete/2?observations=4"}


class Objects:
    """A namespace's custom resources, and the annotations set on them."""

    namespace = "ns"

    def __init__(self, **kinds: dict[str, Any]) -> None:
        self.kinds, self.annotations = kinds, {}

    def find(self, plural: str, name: str) -> dict[str, Any] | None:
        body = self.kinds.get(plural, {}).get(name)
        return {"metadata": {"name": name, "uid": "u"}, **body} if body is not None else None

    def get(self, plural: str, name: str) -> dict[str, Any]:
        body = self.find(plural, name)
        if body is None:
            raise CommandError(f"no {name}")
        return body

    def every(self, plural: str) -> list[dict[str, Any]]:
        return [self.get(plural, name) for name in self.kinds.get(plural, {})]

    def annotate(self, plural: str, name: str, values: Mapping[str, str | None]) -> None:
        self.annotations = dict(values)

    def events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"at": datetime(2026, 1, 1, tzinfo=UTC), "type": "Normal", "reason": "Promoted", "note": "it did well"}]


def options(name: str | None = "x", **more: Any) -> argparse.Namespace:
    return argparse.Namespace(name=name, **more)


def rollout(**fields: Any) -> Objects:
    return Objects(modeldeployments={"x": {"status": fields}})


def test_approve_names_exactly_the_step_that_waits() -> None:
    cluster = rollout(phase="Paused", canary=ARM, step=1, stepText="2/4", weight=25)
    assert approve.run(cluster, options()) == "approved aaaaaaaa at step 2/4 (25 %)"
    assert cluster.annotations == {ANNOTATION_APPROVE: "aaaaaaaa/2"}


def test_approve_refuses_where_nothing_waits() -> None:
    with pytest.raises(CommandError, match=r"waits for no approval \(Healthy\): fine"):
        approve.run(rollout(phase="Healthy", verdict="fine"), options())


def test_retry_unblocks_and_takes_an_old_abort_away() -> None:
    cluster = rollout(blockedRevision={"revision": "aaaaaaaa", "message": "too bad"})
    assert "too bad" in retry.run(cluster, options())
    assert cluster.annotations[ANNOTATION_RETRY]
    assert cluster.annotations[ANNOTATION_ABORT] is None
    with pytest.raises(CommandError, match="nothing to retry"):
        retry.run(rollout(phase="Healthy"), options())


def test_abort_takes_the_canary_or_the_guarded_arm() -> None:
    for fields in ({"canary": ARM, "stable": OLD}, {"stable": ARM, "previous": OLD}):
        cluster = rollout(**fields)
        abort.run(cluster, options())
        assert cluster.annotations == {ANNOTATION_ABORT: "aaaaaaaa"}
    with pytest.raises(CommandError, match="neither a canary nor a warm old arm"):
        abort.run(rollout(phase="Healthy", stable=ARM), options())


def test_train_asks_once_and_refuses_what_cannot_train() -> None:
    ready = {"spec": {"training": {"template": {}}}, "status": {"trainings": 2}}
    cluster = Objects(learningagents={"x": ready})
    assert train.run(cluster, options()) == "asked for x-3"
    assert set(cluster.annotations) == {ANNOTATION_TRAIN}
    for spec, said in (({}, "spec.training"), ({"training": {"a": 1}, "suspend": True}, "spec.suspend")):
        with pytest.raises(CommandError, match=said):
            train.run(Objects(learningagents={"x": {"spec": spec}}), options())


def test_trace_walks_from_the_model_to_the_experience() -> None:
    job = {
        "spec": {"algorithm": "ppo", "totalSteps": 1000},
        "status": {
            "phase": "Validated",
            "artifact": {"uri": "https://m/1", "sha256": SHA},
            "evaluation": {"mean": 487.2, "ciLow": 481.0, "ciHigh": 492.1, "episodes": 100},
            "gates": [{"name": "minReturn", "passed": True, "message": "487.2 ≥ 400"}],
            "startedAt": "t0",
            "finishedAt": "t1",
            "lineage": {
                "learningAgent": "x",
                "rewardPolicy": "p",
                "rewardPolicyRevision": "r1",
                "trajectories": 200,
            },
        },
    }
    cluster = Objects(
        modeldeployments={"x": {"status": {"stable": ARM, "canary": None}}},
        trainingjobs={"x-1": job},
        rewardpolicies={"p": {"status": {"revision": "r2"}}},
    )
    said = trace.run(cluster, options(arm="stable"))
    for part in ("x-1: ppo, 1000 steps", "487.2 [481.0, 492.1] over 100", "p revision r1; now r2", "200 trajectories"):
        assert part in said
    assert "nothing to trace" in trace.run(cluster, options(arm="canary"))


def test_trace_says_where_the_trail_ends() -> None:
    assert "nothing was learned yet" in trace.run(rollout(stable=OLD), options(arm="stable"))
    assert "pinned from outside" in trace.run(rollout(stable=ARM), options(arm="stable"))


def test_why_tells_verdict_arms_and_log() -> None:
    said = why.run(rollout(phase="Guarding", verdict="guarding it", stable=ARM, previous=OLD), options())
    for part in ("guarding it", "aaaaaaaa https://m/1, 0/0 ready", "00:00:00  Promoted: it did well"):
        assert part in said
    assert "has not looked at it yet" in why.run(rollout(), options())


def test_status_shows_every_agents_loop() -> None:
    agent = {"status": {"phase": "Collecting", "trajectories": 9, "rewarded": 8, "recentReturn": 20.0}}
    cluster = Objects(learningagents={"a": agent, "b": {}}, modeldeployments={"a": {"status": {"stable": ARM}}})
    said = status.run(cluster, options(None))
    assert "a: Collecting" in said
    assert "9 episodes, 8 rewarded, 0 since the last run" in said
    assert "b: not yet seen by the operator" in said
    assert status.run(Objects(), options(None)) == "no LearningAgent in namespace 'ns'"


def test_without_a_cluster_the_command_fails_with_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main.main(["--kubeconfig", str(tmp_path / "none"), "status"]) == 1
    assert capsys.readouterr().err.startswith("error: no usable kubeconfig")
