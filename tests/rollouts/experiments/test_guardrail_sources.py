"""Guardrails on latency and on events of the user's own: withdrawn, proven, or waiting for a number."""

from dataclasses import replace

import pytest

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.rollouts.experiment import ExperimentGuardrail
from learnloop_operator.rollout.decide import current
from learnloop_operator.rollout.evidence import Missing
from learnloop_operator.rollout.experiments.arms import check_of, checks
from learnloop_operator.rollout.metrics.all_types import type_of
from testing.simulation.event_cluster import AWAY, EMPTY, NAN, EventCluster
from testing.simulation.rollout_cluster import uri

SLOW = {"name": "slow", "type": "latency", "quantile": 0.95, "maxDrop": 0.1}
OWN = {
    "name": "polite",
    "type": "promql",
    "query": 'sum(increase(polite{revision="$revision"}[$window]))',
    "totalQuery": 'sum(increase(said{revision="$revision"}[$window]))',
    "maxDrop": 0.1,
}


def guarded(guardrail: dict[str, object], *chances: float, **more: object) -> EventCluster:
    return EventCluster(chances, (25,) * (len(chances) - 1), guardrails=[guardrail], maxEpisodes=6_000, **more)


def test_the_best_arm_is_withdrawn_when_it_is_certainly_slower_and_the_next_one_wins() -> None:
    cluster = guarded(SLOW, 0.5, 0.95, 0.85)
    cluster.prompt[uri(1)] = 0.7
    cluster.start().finish()
    assert cluster.arm("a")["standing"] == "withdrawn"
    said = "guardrail slow: share of requests within 0.05 s of a 0.7 vs 0.99 of stable over "
    assert cluster.arm("a")["message"].startswith(said)
    assert cluster.status["stable"]["uri"] == uri(2)
    stable = cluster.arm("stable")["guardrails"][0]
    assert (stable["boundSeconds"], stable["block"]) == (0.05, 10.0)


def test_the_best_arm_is_withdrawn_when_events_of_the_users_own_are_certainly_worse() -> None:
    cluster = guarded(OWN, 0.5, 0.95, 0.85)
    cluster.fine[uri(1)] = 0.5
    cluster.start().finish()
    assert cluster.arm("a")["message"].startswith("guardrail polite: share of good events of polite of a 0.5 vs 0.9 ")
    assert cluster.status["stable"]["uri"] == uri(2)


@pytest.mark.parametrize("guardrail", [SLOW, OWN], ids=["latency", "promql"])
def test_a_winner_is_proven_to_keep_them(guardrail: dict[str, object]) -> None:
    cluster = guarded(guardrail, 0.5, 0.9)
    cluster.start().finish()
    assert cluster.status["stable"]["uri"] == uri(1)
    assert cluster.arm("a")["guardrails"][0]["standing"] == "holds"


@pytest.mark.parametrize(("problem", "mute"), [(NAN, 1), (EMPTY, 0), (AWAY, 1)], ids=["nan", "empty", "away"])
def test_without_a_number_nobody_wins_and_nobody_leaves_and_the_verdict_says_why(problem: Missing, mute: int) -> None:
    cluster = guarded(OWN, 0.5, 0.9)
    cluster.problems[uri(mute)] = problem
    cluster.start().run(120)
    assert cluster.status["experiment"]["phase"] == "Running"
    name = "stable" if mute == 0 else "a"
    assert f"polite: no number for {name}: {problem.text}" in cluster.status["verdict"]
    (data,) = (item for item in cluster.status["conditions"] if item["type"] == "DataAvailable")
    assert (data["status"], data["reason"]) == ("Unknown" if problem is AWAY else "False", problem.reason)
    assert cluster.arm("a")["guardrails"][0]["standing"] == "unproven"
    cluster.problems.clear()
    cluster.finish()
    assert cluster.status["stable"]["uri"] == uri(1)


def test_a_proof_waits_while_its_number_is_missing() -> None:
    cluster = guarded(OWN, 0.5, 0.6, minEpisodes=400).start()
    while "experiment" not in cluster.status or cluster.arm("a")["guardrails"][0]["standing"] != "holds":
        cluster.run(5)
    cluster.problems[uri(1)] = NAN
    cluster.quality[uri(1)] = 1.0
    cluster.run(180)
    assert (cluster.status["experiment"]["phase"], cluster.arm("a")["standing"]) == ("Running", "playing")
    cluster.problems.clear()
    cluster.finish()
    assert cluster.status["stable"]["uri"] == uri(1)


def test_the_bound_of_a_latency_outlives_the_operator() -> None:
    cluster = guarded(SLOW, 0.5, 0.5).start()
    cluster.run(60)
    fixed = cluster.arm("stable")["guardrails"][0]
    cluster.prompt[uri(0)] = 0.5
    cluster.run(60)
    after = cluster.arm("stable")["guardrails"][0]
    assert (after["boundSeconds"], after["block"]) == (fixed["boundSeconds"], fixed["block"]) == (0.05, 10.0)
    assert after["judged"][0] > fixed["judged"][0]


def test_the_evidence_is_asked_for_while_the_experiment_runs_with_queries_of_the_arm() -> None:
    cluster = guarded(OWN, 0.5, 0.5).start()
    cluster.run(30)
    snapshot = cluster.snapshot()
    trial = current(snapshot).experiment
    (check,) = checks(snapshot.spec, trial)
    assert trial is not None
    assert check.name == "guardrail polite", "no metric of spec.analysis has a space in its name"
    asked = type_of(check).queries(check, "ns", "cafe0000", 90)
    assert asked == (
        'sum(increase(polite{revision="cafe0000"}[90s]))',
        'sum(increase(said{revision="cafe0000"}[90s]))',
    )
    assert checks(snapshot.spec, replace(trial, phase="Finished")) == []
    assert checks(ModelDeploymentSpec.model_validate(cluster.spec | {"experiment": None}), trial) == []


def test_a_latency_is_that_of_the_quantile_asked_for() -> None:
    assert check_of(ExperimentGuardrail.model_validate(SLOW)).quantile == 0.95
