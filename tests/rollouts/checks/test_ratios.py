"""A ratio's comparison: both arms at the same time and weight, and nothing while one of them does not play."""

from dataclasses import replace

import pytest

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_operator.rollout.checks.against_stable import Comparison, compared, load_comparisons
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.statistics.canary_against_stable import LookMemory
from testing.simulation.two_arm_rig import Rig

METRIC = {"name": "success", "type": "success", "minRatio": 0.8, "minEpisodes": 5}
ANALYSIS = Analysis(metrics=[MetricThreshold.model_validate(METRIC)])


def look(
    before: tuple[Comparison, ...], canary: int, stable: int, gap: int = 0, *, concurrent: bool = True
) -> tuple[Comparison, ...]:
    arms = {"c": ArmEvidence(canary, success_rate=0.9), "s": ArmEvidence(stable, success_rate=0.9, gap=gap)}
    return compared(ANALYSIS, before, Evidence(arms), "c", "s", concurrent=concurrent)


def episodes(comparisons: tuple[Comparison, ...]) -> float:
    """Of the canary that were compared."""
    return comparisons[0].memory.judged.canary.n


@pytest.mark.parametrize(("concurrent", "gap"), [(False, 0), (True, 1)])
def test_nothing_is_compared_while_one_arm_gets_no_episodes_or_its_beginning_is_lost(concurrent, gap):
    before = look(look(look((), 4, 40), 6, 60), 10, 100)
    assert episodes(before) == 4
    after = look(before, 40, 110, gap, concurrent=concurrent)
    assert (episodes(after), after[0].memory.counted) == (4, None)


def test_of_two_prometheus_servers_that_answer_in_turn_each_episode_is_compared_once() -> None:
    memory = look((), 60, 600)
    for n in range(61, 200):
        memory = look(look(memory, n, 10 * n), n - 15, 10 * (n - 15))
    assert 130 < episodes(memory) <= 199 - 60


class Falling(Rig):
    """The rig of both arms gets worse when `falls` says so."""

    falls = ""

    def run(self, seconds: int) -> str:
        for _ in range(seconds):
            if self.falls and (self.status.get("weight") or 0) >= 25:
                self.means = dict.fromkeys(self.means, 0.5)
            super().run(1)
        return str(self.status["phase"])


def test_identical_models_climb_although_the_world_falls_between_steps() -> None:
    for seed in range(10):
        rig = Falling(seed, 1.0, METRIC, stable=1.0)
        rig.falls = "yes"
        assert rig.run(200) == "Guarding", rig.status["verdict"]


def test_a_worse_canary_is_rolled_back_with_what_stable_made_at_the_same_time() -> None:
    rig = Rig(3, 0.4, METRIC)
    assert rig.run(100) == "RolledBack"
    message = rig.status["blockedRevision"]["message"]
    assert " of stable at the same time over " in message
    assert "P(worse at the same time)" in message


def test_in_the_guard_a_ratio_neither_breaks_nor_holds() -> None:
    rig = Rig(4, 0.95, METRIC)
    assert rig.run(200) == "Guarding"
    rig.means = {"canary": 0.3, "stable": 0.9}
    rig.played["canary"] = replace(rig.played["canary"], n=500, total=150)
    rig.look()
    assert rig.status["phase"] == "Guarding"
    assert "not comparable: the old arm receives no more episodes" in rig.status["verdict"]


def test_what_was_compared_survives_a_restart_and_damaged_numbers_begin_again() -> None:
    rig = Rig(5, 0.9, METRIC)
    while not ((rig.status.get("evidence") or [{}])[0].get("judged") or [0.0])[0] > 5:
        rig.run(1)
    saved = MetricEvidence.model_validate(rig.evidence)
    assert episodes(load_comparisons([saved])) > 5
    damages = [{"judged": [1.0]}, {"judged": [float("nan")] * 4}, {"log_worse": None}]
    for damage in damages:
        assert load_comparisons([saved.model_copy(update=damage)])[0].memory == LookMemory()


def test_a_rollout_whose_steps_let_nobody_play_beside_the_canary_is_not_held_by_a_ratio() -> None:
    rig = Rig(6, 0.9, METRIC)
    rig.spec["rollout"]["steps"] = [{"weight": 100, "minEpisodes": 20}]
    assert rig.run(60) == "Guarding"
