"""What a ratio compares: both arms at the same time and weight, when the first short episodes are over."""

from dataclasses import replace
from typing import Any

import pytest

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_operator.rollout.checks.paired_outcomes import PairedOutcomes, looked
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.rollout.model.evidence_codec import load_ratios
from testing.simulation.two_arm_world import World

METRIC = {"name": "success", "type": "success", "minRatio": 0.8, "minEpisodes": 5}
ANALYSIS = Analysis(metrics=[MetricThreshold.model_validate(METRIC)])


def look(
    before: tuple[PairedOutcomes, ...], weight: int, canary: int, stable: int, gap: int = 0
) -> tuple[PairedOutcomes, ...]:
    arms = {"c": ArmEvidence(canary, success_rate=0.9), "s": ArmEvidence(stable, success_rate=0.9, gap=gap)}
    return looked(ANALYSIS, before, Evidence(arms), "c", "s", weight)


def test_the_first_episodes_of_a_weight_are_not_compared_and_no_batch_reaches_over_a_change_of_it() -> None:
    trials = look((), 10, 4, 40)
    assert not trials[0].rows
    trials = look(trials, 10, 6, 60)
    assert trials[0].compared == 0
    trials = look(trials, 10, 10, 100)
    assert trials[0].compared == 4
    trials = look(trials, 25, 20, 130)
    assert (trials[0].compared, trials[0].start, trials[0].seen) == (4, 20, None)
    trials = look(look(look(trials, 25, 24, 150), 25, 26, 160), 25, 28, 166)
    assert trials[0].compared == 6


@pytest.mark.parametrize(("weight", "gap"), [(100, 0), (0, 0), (10, 1)])
def test_nothing_is_compared_while_one_arm_gets_no_episodes_or_its_beginning_is_lost(weight: int, gap: int) -> None:
    trials = look(look((), 10, 6, 60), 10, 10, 100)
    trials = look(trials, weight, 40, 110, gap)
    assert (trials[0].compared, trials[0].seen) == (4, None)


def test_of_two_prometheus_servers_that_answer_in_turn_each_episode_is_compared_once() -> None:
    trials = look((), 10, 60, 600)
    for n in range(61, 200):
        trials = look(look(trials, 10, n, 10 * n), 10, n - 15, 10 * (n - 15))
    assert trials[0].compared <= 199 - 60
    assert trials[0].compared > 130


class Falling(World):
    """The world of both arms gets worse when `falls` says so."""

    falls = ""

    def run(self, seconds: int) -> str:
        for _ in range(seconds):
            if self.falls and (self.status.get("weight") or 0) >= 25:
                self.means = dict.fromkeys(self.means, 0.5)
            super().run(1)
        return str(self.status["phase"])


def test_identical_models_climb_although_the_world_falls_between_steps() -> None:
    for seed in range(10):
        world = Falling(seed, 1.0, METRIC, stable=1.0)
        world.falls = "yes"
        assert world.run(200) == "Guarding", world.status["verdict"]


def test_a_worse_canary_is_rolled_back_with_what_stable_made_at_the_same_time() -> None:
    world = World(3, 0.4, METRIC)
    assert world.run(100) == "RolledBack"
    message = world.status["blockedRevision"]["message"]
    assert " of stable at the same time over " in message
    assert "P(below the bar at the same time)" in message


def test_in_the_guard_a_ratio_neither_breaks_nor_holds() -> None:
    world = World(4, 0.95, METRIC)
    assert world.run(200) == "Guarding"
    world.means = {"canary": 0.3, "stable": 0.9}
    world.played["canary"] = replace(world.played["canary"], n=500, total=150)
    world.look()
    assert world.status["phase"] == "Guarding"
    assert "not comparable: the old arm plays no more" in world.status["verdict"]


def test_what_was_compared_survives_a_restart_and_damaged_numbers_begin_anew() -> None:
    world = World(5, 0.9, METRIC)
    while not ((world.status.get("evidence") or [{}])[0].get("compared") or [0.0])[0] > 5:
        world.run(1)
    saved = MetricEvidence.model_validate(world.evidence)
    found = load_ratios([saved])[0]
    assert found.compared > 5
    damages: list[dict[str, Any]] = [{"compared": [1.0]}, {"seen": [1.0]}, {"compared": [float("nan")] * 6}]
    for damage in damages:
        assert load_ratios([saved.model_copy(update=damage)])[0] == PairedOutcomes(saved.name, saved.claim)


def test_a_rollout_whose_steps_let_nobody_play_beside_the_canary_is_not_held_by_a_ratio() -> None:
    world = World(6, 0.9, METRIC)
    world.spec["rollout"]["steps"] = [{"weight": 100, "minEpisodes": 20}]
    assert world.run(60) == "Guarding"
