"""Signs of reward hacking: each is found when it is there, and honest rewards raise none."""

import random

import pytest

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_memory.rewards.signals import FEWEST, Rewarded, read_signals

SPEC = RewardPolicySpec.model_validate(
    {
        "components": [
            {"name": "done", "type": "success", "weight": 0.5},
            {"name": "quick", "type": "efficiency", "weight": 0.5, "scale": 10},
        ]
    }
)


def episode(number: int, done: float, quick: float, **changes: object) -> Rewarded:
    parts = {"done": done, "quick": quick}
    values: dict = {"reward": (done + quick) / 2, "fingerprint": f"f{number}", "feedback": None}
    return Rewarded(trajectory_id=f"t{number}", components=parts, **(values | changes))


def honest(count: int, seed: int) -> list[Rewarded]:
    rng = random.Random(seed)
    made = []
    for number in range(count):
        done, quick = float(rng.random() < 0.6), rng.random()
        made.append(episode(number, done, quick, feedback=done + rng.gauss(0, 1)))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_honest_rewards_raise_no_suspicion(seed: int) -> None:
    found = read_signals(SPEC, honest(300, seed))
    assert (found.suspected, found.reason, found.worst) == (False, "NothingFound", [])


def test_few_rewards_prove_nothing() -> None:
    assert read_signals(SPEC, honest(FEWEST - 1, 0)).suspected is None
    assert read_signals(SPEC, []).reason == "NotEnoughRewards"


def test_one_component_that_explains_all_the_variation_is_named_with_its_worst_episodes() -> None:
    rewards = [episode(number, 0.0, number / 200 if number != 7 else 5.0) for number in range(200)]
    found = read_signals(SPEC, rewards)
    assert found.reason == "ComponentDominates"
    assert "component quick alone explains 100% of the rewards' variation at a weight of 50%" in found.sentence
    assert found.worst[0] == "t7"


def test_a_policy_of_one_component_is_not_dominated_by_it() -> None:
    spec = RewardPolicySpec.model_validate({"components": [{"name": "quick", "type": "efficiency", "weight": 1}]})
    assert read_signals(spec, [episode(number, 0.0, number / 200) for number in range(200)]).suspected is False


@pytest.mark.parametrize(("pays", "reason"), [(1.0, "DuplicateTrajectories"), (0.0, "NothingFound")])
def test_repeated_episodes_are_suspicious_when_they_pay(pays: float, reason: str) -> None:
    rewards = honest(200, 1)
    rewards += [episode(1000 + number, pays, pays, fingerprint="again") for number in range(80)]
    found = read_signals(SPEC, rewards)
    assert found.reason == reason
    if found.suspected:
        assert found.worst == ["t1000", "t1001", "t1002"]
        assert found.sentence.startswith("28% of the episodes repeat another one exactly")


def test_rewards_that_people_dislike_are_found_by_feedback_the_policy_does_not_use() -> None:
    rng = random.Random(3)
    rewards = []
    for number in range(200):
        quick = rng.random()
        rewards.append(episode(number, float(rng.random() < 0.5), quick, feedback=-quick + rng.gauss(0, 0.1)))
    found = read_signals(SPEC, rewards)
    assert (found.suspected, found.reason) == (True, "FeedbackDisagrees")
    liked = {item.trajectory_id: item.feedback for item in rewards}
    assert all((liked[identity] or 0) < -0.5 for identity in found.worst)
    few = [item if number < 20 else episode(number, number % 2, 0.5) for number, item in enumerate(rewards)]
    assert read_signals(SPEC, few).reason != "FeedbackDisagrees", "20 opinions are too few"
