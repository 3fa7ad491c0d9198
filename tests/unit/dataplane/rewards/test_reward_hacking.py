"""Signs of reward hacking: each is found when it is there, and honest rewards raise none."""

import random
from collections import deque

import pytest

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_common.reward_rules.components import Episode, evaluate
from learnloop_dataplane.rewards.reward_hacking import FEWEST, NEWEST, Rewarded, read_signals

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
    findings = read_signals(SPEC, honest(300, seed))
    assert (findings.suspected, findings.reason, findings.worst) == (False, "NothingFound", [])


@pytest.mark.parametrize(("more", "rated"), [(15, 1.0), (1000, 0.15)])
def test_feedback_that_has_nothing_to_do_with_the_rewards_is_suspected_in_few_runs_of_sixty_looks(more, rated):
    """As it is used: each look is at the newest rewards, which are `more` than at the look before."""
    suspected = 0
    for seed in range(40):
        rng, newest = random.Random(seed), deque[Rewarded](maxlen=NEWEST)
        for look in range(60):
            for number in range(100 if look == 0 else more):
                feedback = rng.gauss(0.0, 1.0) if rng.random() < rated else None
                quick = rng.random()
                newest.append(episode(look * 1000 + number, float(rng.random() < 0.6), quick, feedback=feedback))
            if read_signals(SPEC, list(newest)).suspected:
                suspected += 1
                break
    assert suspected <= 2


def test_few_rewards_prove_nothing() -> None:
    assert read_signals(SPEC, honest(FEWEST - 1, 0)).suspected is None
    assert read_signals(SPEC, []).reason == "NotEnoughRewards"


def rewarded(spec: RewardPolicySpec, episodes: list[Episode]) -> list[Rewarded]:
    worth = [evaluate(spec, item) for item in episodes]
    return [Rewarded(f"t{n}", one.components, one.raw, None, None) for n, one in enumerate(worth)]


@pytest.mark.parametrize(
    ("success", "steps"),
    [(0.6, (20, 20)), (0.6, (15, 30)), (0.98, (15, 30)), (0.7, (3, 8)), (1.0, (5, 90)), (0.999, (1, 99))],
)
def test_ordinary_agents_under_the_default_policy_raise_no_suspicion(success: float, steps: tuple[int, int]) -> None:
    rng = random.Random(1)
    episodes = [Episode(0, rng.random() < success, rng.randint(*steps)) for _ in range(1000)]
    assert read_signals(RewardPolicySpec(), rewarded(RewardPolicySpec(), episodes)).reason == "NothingFound"


def test_a_policy_before_its_first_success_earns_by_the_return_and_that_is_its_goal() -> None:
    spec = RewardPolicySpec.model_validate(
        {
            "components": [
                {"name": "upright", "type": "environment", "weight": 0.8, "scale": 500},
                {"name": "solved", "type": "success", "weight": 0.2},
            ]
        }
    )
    rng = random.Random(1)
    lengths = [rng.randint(9, 60) for _ in range(500)]
    findings = read_signals(spec, rewarded(spec, [Episode(length, False, length) for length in lengths]))
    assert findings.reason == "NothingFound"


@pytest.mark.parametrize(("pays", "reason"), [(1.0, "DuplicateTrajectories"), (0.0, "NothingFound")])
def test_repeated_episodes_are_suspicious_when_they_pay(pays: float, reason: str) -> None:
    rewards = honest(200, 1)
    rewards += [episode(1000 + number, pays, pays, fingerprint="again") for number in range(80)]
    findings = read_signals(SPEC, rewards)
    assert findings.reason == reason
    if findings.suspected:
        assert findings.worst == ["t1000", "t1001", "t1002"]
        assert findings.sentence.startswith("28% of the episodes repeat another one exactly")


def test_rewards_that_people_dislike_are_found_by_feedback_the_policy_does_not_use() -> None:
    rng = random.Random(3)
    rewards = []
    for number in range(200):
        quick = rng.random()
        rewards.append(episode(number, float(rng.random() < 0.5), quick, feedback=-quick + rng.gauss(0, 0.1)))
    findings = read_signals(SPEC, rewards)
    assert (findings.suspected, findings.reason) == (True, "FeedbackDisagrees")
    liked = {item.trajectory_id: item.feedback for item in rewards}
    assert all((liked[identity] or 0) < -0.5 for identity in findings.worst)
    few = [item if number < 20 else episode(number, number % 2, 0.5) for number, item in enumerate(rewards)]
    assert read_signals(SPEC, few).reason != "FeedbackDisagrees", "20 opinions are too few"
