"""A chain of models, each as little worse than the one before as a rollout allows, ends at the anchor."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_operator.rollout.checks.anchor import against_anchor, taken
from learnloop_operator.rollout.checks.error_budget import alpha_of_bound
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence, Verdict
from testing.simulation.rollout_cluster import BAD, GOOD, Cluster, uri

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHAIN = 20
WORSE = 0.97
"""Of the model before it: minRatio 0.9 lets each of them pass."""
RETURN = {"name": "return", "type": "return", "minRatio": 0.9, "returnRange": {"lowest": 0, "highest": 500}}
QUICK = [{"weight": weight, "minEpisodes": 6} for weight in (50, 100)]


def promoted(anchor: dict[str, Any] | None) -> tuple[list[float], Cluster]:
    """Mean returns of the models that became stable, one after the other."""
    cluster = Cluster(QUICK, keep=1)
    cluster.spec["analysis"] |= {"metrics": [RETURN], **({"anchor": anchor} if anchor else {})}
    cluster.run(10)
    served = [GOOD]
    for number in range(1, CHAIN + 1):
        quality = GOOD * WORSE**number
        cluster.wish(number, quality)
        cluster.settle()
        if cluster.status["stable"]["uri"] != uri(number):
            break  # those that follow are worse
        served.append(quality)
    return served, cluster


def test_without_an_anchor_twenty_slightly_worse_models_lose_nearly_half() -> None:
    served, _ = promoted(None)
    assert len(served) == CHAIN + 1
    assert served[-1] < 0.55 * GOOD


@pytest.mark.parametrize("value", [None, 0.9 * GOOD + 30.0], ids=["of the first stable arm", "written"])
def test_with_an_anchor_the_chain_ends_where_it_would_lose_too_much(value: float | None) -> None:
    said = {"name": "return", "maxDrop": 30.0, **({"value": value} if value else {})}
    served, cluster = promoted({"minEpisodes": 6, "metrics": [said]})
    floor = (value or GOOD) - 30.0
    assert served[-1] >= floor
    assert served[-1] * WORSE < floor, "what loses less is let through"
    assert cluster.status["stable"]["uri"] == uri(len(served) - 1)
    verdict = cluster.status["verdict"]
    assert "at most 30 worse" in verdict
    if value is None:
        (figure,) = cluster.status["anchor"]
        assert (figure["value"], figure["type"]) == (GOOD, "return"), "it is the first one's, whatever was promoted"
        assert f"anchor 300 of {figure['revision']}" in verdict
    else:
        assert "anchor" not in cluster.status
    cluster.wish(CHAIN + 1, BAD)
    assert cluster.settle() == "RolledBack"
    assert "at most 30 worse" in cluster.status["blockedRevisions"][-1]["message"]


def seen(kind: str, worse: float, episodes: int) -> ArmEvidence:
    """An arm that is so much worse than the best there can be, in the metric's own unit."""
    if kind == "return":
        return ArmEvidence(episodes, 400.0 - worse, 1.0, 0.0)
    return ArmEvidence(episodes, 0.0, *((1.0 - worse, 0.0) if kind == "success" else (1.0, worse)))


@given(
    kind=st.sampled_from(["success", "errors", "return"]),
    losses=st.lists(st.floats(0.0, 0.2), min_size=CHAIN, max_size=CHAIN),
    allowed=st.floats(0.01, 0.5),
    episodes=st.integers(5, 10_000),
)
def test_no_chain_of_promotions_serves_what_was_seen_beyond_the_anchor(
    kind: str, losses: list[float], allowed: float, episodes: int
) -> None:
    unit = 400.0 if kind == "return" else 1.0
    wide: dict[str, Any] = {"minRatio": 0.1, "returnRange": {"lowest": 0, "highest": 400}}
    bounds: dict[str, dict[str, Any]] = {"return": wide, "errors": {"max": 1.0}}
    metric = {"name": "m", "type": kind, **bounds.get(kind, {"min": 0.0})}
    anchor = {"minEpisodes": 5, "metrics": [{"name": "m", "maxDrop": allowed * unit}]}
    analysis = Analysis.model_validate({"metrics": [metric], "anchor": anchor})
    figures, served = taken(analysis, (), seen(kind, 0.0, episodes), "a" * 8, NOW), 0.0
    first = figures
    for loss in losses:
        worse = min(1.0, served + loss)
        arm, alpha = seen(kind, worse * unit, episodes), alpha_of_bound(analysis)
        called = {"subject_is": "the canary", "reference_is": "stable"}
        (found,) = against_anchor(analysis, figures, arm, None, alpha, **called, waits=True)
        within = worse <= allowed * (1 + 1e-9)
        assert found.verdict is Verdict.PASS or worse >= allowed * (1 - 1e-9), "what loses no more is let through"
        assert found.verdict is not Verdict.BREACH or not within
        if found.verdict is Verdict.PASS:
            served = worse
        figures = taken(analysis, figures, seen(kind, served * unit, episodes), "b" * 8, NOW)
    assert served <= allowed * (1 + 1e-9)
    assert figures == first, "no promotion moves it"


def test_a_step_waits_for_the_anchor_and_the_guard_does_not() -> None:
    metric = {"name": "m", "type": "success", "min": 0.1}
    said: dict[str, Any] = {"metrics": [metric], "anchor": {"metrics": [{"name": "m", "maxDrop": 0.1}]}}
    analysis = Analysis.model_validate(said)
    few, many = seen("success", 0.0, 99), seen("success", 0.0, 100)
    assert taken(analysis, (), few, "a" * 8, NOW) == ()
    called = {"subject_is": "the canary", "reference_is": "stable"}
    (held,) = against_anchor(analysis, (), many, few, 0.01, **called, waits=True)
    assert held.verdict is Verdict.HOLD
    assert held.sentence == "m: no anchor yet, stable has 99 of 100 episodes needed"
    assert list(against_anchor(analysis, (), many, few, 0.01, **called, waits=False)) == []
    figures = taken(analysis, (), many, "a" * 8, NOW)
    assert [figure.value for figure in figures] == [1.0]
    other = Analysis.model_validate(said | {"metrics": [metric | {"type": "errors", "min": None, "max": 0.5}]})
    assert taken(other, figures, few, "b" * 8, NOW) == (), "of another quantity"
    assert taken(Analysis.model_validate({"metrics": [metric]}), figures, many, "b" * 8, NOW) == (), "nobody asks"
