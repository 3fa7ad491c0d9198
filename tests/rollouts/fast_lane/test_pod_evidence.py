"""The fast lane's evidence: what its looks at the pods' counters add up to."""

import math
import random
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.rollout.checks.hard_bound import Reading, between
from learnloop_operator.rollout.fast_lane import UNREACHABLE, at_weight, breach, looked, of_episodes
from testing.simulation.fast_lane_pods import CHECKS, METRICS, NEW, NOW, SPEC, START, Pod, after, cause, look, watched


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"outcome": "error"}, "error rate of the canary 1 over"),
        ({"outcome": "failure"}, "success rate of the canary 0 over"),
        ({"value": 0.0}, "return of the canary at most 0 over at least"),
        ({"value": 2.0}, "return of the canary 2 over"),
        ({"value": -500.0}, "return of the canary at most 0 over at least"),
        ({"seconds": 0.2}, "requests to the canary took longer than 0.1 s; bar at most 0.11"),
    ],
)
def test_every_hard_bound_can_be_broken_and_says_its_numbers(how: dict, words: str) -> None:
    pod = Pod()
    assert words in cause(after(pod, *[lambda: pod.episode(**how)] * 40))


def test_failing_requests_need_no_episode_to_end() -> None:
    pod = Pod()
    direct = after(pod, *[lambda: pod.request(fails=True)] * 8)
    assert cause(direct).startswith("1 of ")
    assert "requests to the canary failed; bar at most 0.05; read from its own pods" in cause(direct)


def test_a_good_arm_breaks_nothing() -> None:
    pod = Pod()
    assert cause(after(pod, *[pod.episode] * 300)) == ""


def test_one_return_far_below_its_range_is_one_bad_outcome_and_not_all_that_ended_with_it() -> None:
    pod = Pod()

    def busy_second(worst: float) -> None:
        for value in (*[80.0] * 39, worst):
            pod.episode(value=value)

    assert cause(after(pod, *[lambda: busy_second(80.0)] * 5, lambda: busy_second(-1e6), pod.episode)) == ""


def test_what_a_process_counted_before_the_first_look_is_not_asked() -> None:
    pod = Pod()
    for _ in range(100):
        pod.episode("error")
        pod.request(fails=True)
    assert cause(after(pod, pod.episode, pod.episode)) == ""


def test_outcomes_at_weight_0_are_an_earlier_rollouts() -> None:
    pod = Pod()
    before = after(pod, *[lambda: pod.episode("error")] * 50, direct=watched(0))
    assert not before.alarms
    assert cause(after(pod, *[pod.episode] * 5, direct=at_weight(before, 10))) == ""


def test_the_first_episodes_at_a_weight_do_not_count_for_the_short_ones_end_first() -> None:
    pod = Pod()
    direct = after(pod, *[lambda: pod.episode("failure", 80.0)] * 3)
    assert all(alarm.recent.n == 0 for claim, alarm in direct.alarms.items() if claim.startswith("success"))
    raised = at_weight(direct, 25)
    assert (raised.episodes, raised.steady, raised.alarms) == (0.0, False, direct.alarms)


def test_episodes_do_not_count_before_the_long_ones_end_and_failing_requests_do() -> None:
    pod = Pod()
    early = after(pod, *[lambda: pod.episode("error")] * 50, direct=watched(steady=False))
    assert cause(early) == ""
    failing = after(pod, *[lambda: pod.request(fails=True)] * 20, direct=early)
    assert "requests to the canary failed" in cause(failing)


@pytest.mark.parametrize("damage", [{"ended/error": math.nan}, {"failed": math.inf}, {"gain": -1.0}])
def test_a_number_that_is_none_leaves_the_evidence_as_it_is(damage: dict[str, float]) -> None:
    pod = Pod()
    before = after(pod, pod.episode, pod.episode)
    pod.episode("error")
    after_it = looked(before, {f"{NEW}-0": pod.read(**damage)}, CHECKS, NOW, 5)
    assert (after_it.alarms, after_it.last, after_it.last_read) == (before.alarms, before.last, before.last_read)


def test_a_process_that_was_replaced_begins_anew() -> None:
    old, new = Pod(1.0), Pod(2.0)
    for _ in range(50):
        new.request(fails=True)
    assert between(old.read(), new.read()) == {}
    assert cause(look(look(watched(), old), new)) == ""
    fell = Reading(1.0, {**old.counters, "requests": 5.0})
    assert between(fell, old.read()) == {}


class Fate:
    """Events of an arm's pods between two looks."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.pods = [Pod(1.0), Pod(2.0)]

    def pass_second(self) -> None:
        for pod in self.pods:
            for _ in range(self.source.randrange(8)):
                pod.episode("success" if self.source.random() < 0.97 else "failure")
                pod.request(fails=self.source.random() < 0.01)

    def damage(self, kind: str) -> None:
        if kind == "restart":
            self.pods[0] = Pod(self.source.random())
        elif kind == "born failing":
            self.pods[0] = Pod(self.source.random())
            for _ in range(100):
                self.pods[0].request(fails=True)
        elif kind == "gone":
            self.pods = self.pods[1:] or [Pod(self.source.random())]
        elif kind == "more":
            self.pods.append(Pod(self.source.random()))


@given(
    seed=st.integers(0, 10**6),
    kinds=st.lists(
        st.sampled_from(["quiet", "restart", "born failing", "gone", "more", "missed", "half", "nan"]), max_size=40
    ),
)
def test_no_fate_of_the_pods_takes_a_good_model_back(seed: int, kinds: list[str]) -> None:
    fate, direct = Fate(seed), watched()
    for second, kind in enumerate(kinds, 1):
        fate.pass_second()
        fate.damage(kind)
        if kind == "missed":
            direct = look(direct, second=second, silent=range(len(fate.pods)))
        elif kind == "half":
            direct = look(direct, *fate.pods, second=second, silent=(0,))
        elif kind == "nan":
            direct = looked(direct, {f"{NEW}-0": fate.pods[0].read(failed=math.nan)}, CHECKS, START, second)
        else:
            direct = look(direct, *fate.pods, second=second)
        assert cause(direct) == ""


def test_a_pod_that_hangs_does_not_hide_one_that_fails_every_request() -> None:
    failing, hanging = Pod(1.0), Pod(2.0)
    direct = look(watched(), failing, hanging)
    for second in range(2, 8):
        for _ in range(40):
            failing.request(fails=True)
        direct = look(direct, failing, hanging, second=second, silent=(1,))
    assert cause(direct).startswith("1 of ")
    assert direct.last_read == START + timedelta(seconds=7)
    assert direct.problem == ""


@given(silences=st.lists(st.sets(st.integers(0, 2)), max_size=30), seed=st.integers(0, 10**6))
def test_whichever_pods_are_silent_in_between_each_outcome_is_heard_once(silences: list[set[int]], seed: int) -> None:
    source, pods = random.Random(seed), [Pod(float(index)) for index in range(3)]
    direct, played = look(watched(), *pods), 0
    for second, silent in enumerate([*silences, set[int]()], 2):
        for pod in pods:
            for _ in range(source.randrange(4)):
                pod.episode()
                played += 1
        episodes = direct.episodes
        direct = look(direct, *pods, second=second, silent=silent)
        assert episodes <= direct.episodes <= played
    assert direct.episodes == played


def test_what_a_silent_pod_counted_at_weight_0_is_not_asked_when_it_answers_again() -> None:
    pod, other = Pod(1.0), Pod(2.0)
    direct = look(watched(0), pod, other)
    for _ in range(50):
        pod.request(fails=True)
    direct = at_weight(look(direct, pod, other, second=2, silent=(0,)), 10)
    assert cause(look(direct, pod, other, second=3)) == ""


def test_equal_models_are_rolled_back_less_often_than_the_budget_allows() -> None:
    """Arms exactly at two of their bounds, read each second for a minute."""
    source, rollouts, false = random.Random(3), 60, 0
    wide = of_episodes(ModelDeploymentSpec.model_validate({**SPEC, "analysis": {"metrics": METRICS, "alpha": 0.2}}), 10)
    for _ in range(rollouts):
        pod, direct = Pod(), watched()
        for second in range(1, 60):
            for _ in range(3):
                pod.episode(source.choices(("success", "failure", "error"), (0.8, 0.15, 0.05))[0])
            readings = {NEW: pod.read()}
            direct = looked(direct, readings, wide, START + timedelta(seconds=second), second)
            if breach(wide, direct.alarms, "the canary"):
                false += 1
                break
    assert false <= 3  # 0.1 * 0.2 * 60 = 1.2 are allowed on average


def test_the_lanes_state_changes_after_a_while_and_not_with_every_look() -> None:
    pod, direct, changes = Pod(), look(watched(), Pod()), 0
    for second in range(2, 300):
        before = direct.problem
        direct = look(direct, pod, second=second, silent=(0,) if second % 4 else ())
        changes += direct.problem != before
    assert changes == 0
    for second in range(300, 311):
        direct = look(direct, pod, second=second, silent=(0,))
    assert direct.problem == UNREACHABLE
    assert look(direct, pod, second=311).problem == ""


@pytest.mark.parametrize("per_second", [20, 200])
def test_a_pause_now_and_then_that_many_requests_meet_is_no_slow_canary(per_second: int) -> None:
    for half_hour in range(6):
        pod, source = Pod(), random.Random(half_hour)
        direct, pause = after(pod, pod.episode, pod.episode), source.uniform(0.0, 120.0)
        for second in range(4, 1800):
            slow = max(0.0, min(second, pause + 0.5) - max(second - 1, pause))
            pause += 120.0 if pause + 0.5 <= second else 0.0
            pod.requests(slow * per_second, 0.3)
            pod.requests((1.0 - slow) * per_second, 0.01)
            direct = look(direct, pod, second=second)
            assert cause(direct) == "", f"after {second} s"


def test_a_canary_that_is_slow_throughout_is_noticed_within_seconds_however_few_requests_it_gets() -> None:
    for per_second in (1, 100):
        pod = Pod()
        direct, seconds = after(pod, pod.episode, *[pod.request] * 100), 0
        while not cause(direct):
            seconds += 1
            pod.requests(per_second, 0.3)
            direct = look(direct, pod, second=103 + seconds)
        assert seconds <= 15
