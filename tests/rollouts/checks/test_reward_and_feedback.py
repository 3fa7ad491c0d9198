"""Rollouts judged by what the data plane counts: rewards and people's opinions of each revision's episodes."""

from dataclasses import replace

import pytest

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.metric_types import METRIC_TYPES, PLAIN
from learnloop_operator.rollout.evidence import ArmEvidence, Missing
from learnloop_operator.statistics.e_values import Counts
from testing.simulation.two_arm_rig import Rig

RANGE = {"lowest": -0.25, "highest": 1}
REWARD = {"name": "reward", "type": "reward", "test": "sequential", "maxDrop": 0.1, "returnRange": RANGE}
FEEDBACK = {"name": "people", "type": "feedback", "test": "sequential", "maxDrop": 0.2}


class EarningRig(Rig):
    """Both arms succeed equally often; only what their episodes earn, and what people say of half of them, differs."""

    lacking: Missing | None = None

    def scraped(self, role: str) -> ArmEvidence:
        n, good = int(self.played[role].n), self.played[role].total
        alike = replace(super().scraped(role), success_rate=0.9, error_rate=0.0, mean_return=100.0)
        if self.lacking or not n:
            return replace(alike, problems={"reward": self.lacking, "people": self.lacking} if self.lacking else {})
        rewards = Counts(n, -0.25 * n + 1.25 * good)
        return replace(alike, rewards=rewards, opinions=Counts(n / 2, -n / 2 + good))


@pytest.mark.parametrize(
    ("metric", "noun"),
    [
        (REWARD, "reward of the canary"),
        ({"name": "reward", "type": "reward", "minRatio": 0.9, "returnRange": RANGE}, "reward of the canary"),
        ({"name": "reward", "type": "reward", "min": 0.7, "returnRange": RANGE}, "reward of the canary"),
        (FEEDBACK, "feedback of the canary"),
        ({"name": "people", "type": "feedback", "min": 0.5}, "feedback of the canary"),
    ],
)
def test_a_canary_that_earns_less_is_rolled_back_though_it_succeeds_as_often(metric: dict, noun: str) -> None:
    rig = EarningRig(1, 0.6, {"name": "success", "type": "success", "minRatio": 0.9}, metric)
    assert rig.run(400) == "RolledBack"
    assert rig.status["blockedRevision"]["message"].startswith(f"RolledBack at 10 %: {noun} ")
    assert rig.events.count("RolledBack") == 1


@pytest.mark.parametrize("metric", [REWARD, FEEDBACK])
def test_a_canary_that_earns_as_much_is_promoted(metric: dict) -> None:
    assert EarningRig(2, 0.9, metric).run(900) == "Guarding"


def test_a_reward_is_told_in_its_own_unit() -> None:
    rig = EarningRig(3, 0.5, REWARD)
    rig.run(400)
    message = rig.status["blockedRevision"]["message"].split("reward of the canary ")[1]
    canary, stable = float(message.split(" ")[0]), float(message.split(" vs ")[1].split(" ")[0])
    assert -0.25 < canary < 0.55 < 0.7 < stable < 1


def test_a_data_plane_that_does_not_answer_holds_and_takes_nobody_back() -> None:
    rig = EarningRig(4, 0.5, REWARD)
    rig.lacking = Missing(reasons.PROVIDER_DOWN, "the data plane at http://data does not answer")
    rig.run(60)
    assert rig.status["phase"] == "Progressing"
    assert "the data plane at http://data does not answer" in rig.status["verdict"]
    available = next(item for item in rig.status["conditions"] if item["type"] == "DataAvailable")
    assert available["reason"] == reasons.PROVIDER_DOWN
    rig.lacking = None
    assert rig.run(400) == "RolledBack"


def test_few_opinions_say_nothing_however_many_episodes_were_played() -> None:
    rig = EarningRig(5, 0.9, {"name": "people", "type": "feedback", "min": 0.1, "minEpisodes": 1_000_000})
    rig.run(60)
    assert rig.status["phase"] == "Progressing"
    assert "feedback: the canary has " in rig.status["verdict"]
    assert "of 1000000 episodes needed" in rig.status["verdict"]


def test_rewards_outside_their_range_are_no_evidence_and_say_so() -> None:
    rig = EarningRig(6, 0.9, {**REWARD, "returnRange": {"lowest": 0.95, "highest": 2}, "maxDrop": 0.1})
    rig.run(60)
    assert rig.status["phase"] == "Progressing"
    assert "lies outside returnRange 0.95..2" in rig.status["verdict"]


def test_the_rewarded_and_rated_episodes_alone_are_outcomes() -> None:
    metric = MetricThreshold.model_validate(REWARD)
    arm = ArmEvidence(episodes=100, rewards=Counts(40, 15.0), opinions=Counts(10, 5.0))
    kind, feedback = METRIC_TYPES["reward"], METRIC_TYPES["feedback"]
    assert (kind.weight(arm), kind.value(metric, arm)) == (40, 0.375)
    assert kind.outcomes(metric, arm, PLAIN) == Counts(40, 20.0)
    people = MetricThreshold.model_validate(FEEDBACK)
    assert (feedback.weight(arm), feedback.value(people, arm)) == (10, 0.5)
    assert feedback.outcomes(people, arm, PLAIN) == Counts(10, 7.5)
    assert feedback.in_unit(people, 0.75) == 0.5
    silent = ArmEvidence(episodes=100)
    assert (kind.weight(silent), kind.value(metric, silent), kind.outcomes(metric, silent, PLAIN)) == (0, None, None)
