"""Experiments with guardrails: the best arm wins when it is proven to pay with nothing that was named."""

import numpy as np
import pytest

from learnloop_api.kinds.rollouts.experiment import Experiment
from learnloop_operator.rollout.experiments import evidence as experiment_evidence
from learnloop_operator.rollout.experiments.evidence import GuardrailEvidence
from learnloop_operator.statistics.betting import Counts
from testing.simulation.experiment_cluster import ExperimentCluster
from testing.simulation.rollout_cluster import uri

CALM = {"name": "calm", "type": "success", "maxDrop": 0.1}
ASKED = Experiment.model_validate(
    {"arms": [{"name": "a", "uri": uri(1), "sha256": "ab" * 32, "weight": 40}], "guardrails": [CALM], "alpha": 0.2}
)


def guarded(chances: tuple[float, ...], weights: tuple[int, ...] = (25, 25), **more: object) -> ExperimentCluster:
    return ExperimentCluster(chances, weights, guardrails=[CALM], **more)


def test_the_best_arm_that_breaks_a_guardrail_is_withdrawn_and_the_next_one_wins() -> None:
    cluster = guarded((0.5, 0.95, 0.8))
    cluster.success = {uri(0): 0.9, uri(1): 0.6, uri(2): 0.92}
    cluster.start().finish()
    assert cluster.arm("a")["standing"] == "withdrawn"
    assert cluster.arm("a")["message"].startswith("guardrail calm: success rate of a 0.6 vs 0.9 of stable over ")
    assert cluster.arm("a")["message"].endswith("worse by more than 0.1")
    assert cluster.arm("a")["guardrails"][0]["standing"] == "broken"
    assert cluster.status["stable"]["uri"] == uri(2)


def test_an_arm_whose_guardrail_is_unproven_beats_nobody_and_the_verdict_says_so() -> None:
    cluster = guarded((0.5, 0.95), (40,), maxEpisodes=4_000)
    cluster.success = {uri(0): 0.9, uri(1): 0.8}
    cluster.start().run(60)
    assert cluster.arm("a")["logBetter"][0] > experiment_evidence.bar(2, 0.025), "it is better"
    assert cluster.status["experiment"]["message"].endswith("; guardrails unproven: calm of a")
    assert cluster.finish()["stable"]["uri"] == uri(0)
    assert cluster.status["experiment"]["message"].startswith("experiment over after 4000 episodes without a winner")


def test_a_winner_keeps_every_guardrail() -> None:
    cluster = guarded((0.5, 0.9), (40,))
    cluster.success = {uri(0): 0.9, uri(1): 0.9}
    cluster.start().finish()
    assert cluster.status["stable"]["uri"] == uri(1)
    assert "; every guardrail holds" in cluster.status["experiment"]["message"]


@pytest.mark.parametrize("writes", [0, 1, 2, 6])
def test_dying_after_any_write_of_every_other_pass_ends_in_the_same_place(writes: int) -> None:
    cluster = guarded((0.5, 0.95, 0.85))
    cluster.success = {uri(0): 0.9, uri(1): 0.5, uri(2): 0.9}
    cluster.start()
    for number in range(60):
        cluster.reconcile(crash_after=writes if number % 2 else None)
        cluster.tick(3)
    cluster.finish()
    assert cluster.status["stable"]["uri"] == uri(2)


def test_stable_races_again_when_the_arm_that_beat_it_is_withdrawn() -> None:
    cluster = ExperimentCluster((0.5, 0.85, 0.5), (45, 5), maxEpisodes=100_000).start()
    while "experiment" not in cluster.status or cluster.arm("stable")["standing"] != "beaten":
        cluster.run(5)
    assert (cluster.arm("stable")["message"], cluster.arm("b")["standing"]) == ("beaten by a", "playing")
    cluster.errors[uri(1)] = 0.9
    cluster.run(10)
    assert [cluster.arm(name)["standing"] for name in ("stable", "a", "b")] == ["playing", "withdrawn", "playing"]
    assert "winner" not in cluster.status["experiment"], "nothing speaks for b but that a beat stable"


def test_an_experiment_without_guardrails_keeps_its_identity_and_its_whole_alpha() -> None:
    bare = ASKED.model_copy(update={"guardrails": []})
    assert (experiment_evidence.share_of_alpha(bare), experiment_evidence.share_of_alpha(ASKED)) == (0.2, 0.1)


def play(source: np.random.Generator, base: float, arm: float, looks: int) -> set[str]:
    """What was ever said of an arm's guardrail, 20 episodes of each arm a look."""
    bar, guards, n, total = (
        experiment_evidence.bars(ASKED),
        (GuardrailEvidence(), GuardrailEvidence()),
        np.zeros(2),
        np.zeros(2),
    )
    found = set()
    for _ in range(looks):
        seen = tuple(Counts(a, b) for a, b in zip(n, total, strict=True))
        guards = experiment_evidence.look_at_guards(guards, seen, 0.1, bar)
        found.add(experiment_evidence.standing(guards[1], bar))
        n, total = n + 20, total + source.binomial(20, [base, arm])
    return found


def test_an_arm_just_beyond_the_guardrail_is_proven_fine_less_often_than_its_budget_and_one_just_within_is_kept() -> (
    None
):
    source = np.random.default_rng(11)
    at_the_edge = [play(source, 0.8, 0.7, 40) for _ in range(150)]
    assert sum("holds" in found for found in at_the_edge) <= 0.1 * 150 + 5
    assert sum("broken" in found for found in at_the_edge) <= 0.1 * 150 + 5


def test_a_clear_case_is_decided() -> None:
    source = np.random.default_rng(12)
    assert all("holds" in play(source, 0.8, 0.85, 60) for _ in range(20))
    assert all("broken" in play(source, 0.8, 0.5, 60) for _ in range(20))


def test_impossible_and_reset_counters_change_no_guard() -> None:
    bar = experiment_evidence.bars(ASKED)
    guards = experiment_evidence.look_at_guards(
        (GuardrailEvidence(), GuardrailEvidence()), (Counts(0, 0), Counts(0, 0)), 0.1, bar
    )
    for n in (50, 100):
        guards = experiment_evidence.look_at_guards(guards, (Counts(n, 0.9 * n), Counts(n, 0.4 * n)), 0.1, bar)
    assert guards[1].worse > 0
    assert experiment_evidence.look_at_guards(guards, (Counts(160, float("nan")), Counts(160, 50)), 0.1, bar) == guards
    reset = experiment_evidence.look_at_guards(guards, (Counts(3, 1), Counts(170, 60)), 0.1, bar)
    assert [(guard.fine, guard.worse) for guard in reset] == [(guard.fine, guard.worse) for guard in guards]
