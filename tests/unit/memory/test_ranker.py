"""The ranker learns what helps, is used only when it has proved it, and is taken back when it is worse."""

from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_memory.memory.ranker import (
    EXPLORED,
    Ranker,
    Shown,
    credits,
    explore,
    gain,
    learn_from_labels,
    learn_from_reward,
    utility,
)
from learnloop_memory.memory.signals import SIGNALS, STATIC, weight_vector

from .conftest import POLICY, Api, eventually, trajectory
from .test_recall import ask, store


def recalled(rng: np.random.Generator, k: int = 10, n: int = 30, weights: Any = None) -> Shown:
    """A recall of random candidates, in the order the given weights put them."""
    features = rng.standard_normal((n, len(SIGNALS)))
    order = np.argsort(-(features @ (weight_vector(STATIC) if weights is None else weights)))
    return Shown(features[order], k, np.array([1.0] * k + [0.0] * (n - k)))


def helpful(shown: Shown, truth: Any) -> list[int]:
    """The three of the shown that really help most."""
    return [int(index) for index in np.argsort(-(shown.features[: shown.k] @ truth))[:3]]


def test_it_finds_the_signal_that_helps_and_proves_it() -> None:
    rng = np.random.default_rng(1)
    truth = weight_vector({"recency": 1.5, "utility": 1.0})
    ranker = Ranker()
    for _ in range(500):
        shown = recalled(rng, weights=ranker.vector())
        ranker = learn_from_labels(ranker, shown, helpful(shown, truth))
    assert ranker.active
    fresh = [recalled(rng) for _ in range(200)]
    learned, static = (
        np.mean([gain(shown, weights, helpful(shown, truth)) for shown in fresh])
        for weights in (ranker.vector(), weight_vector(STATIC))
    )
    assert learned > 1.1 * static


@pytest.mark.parametrize("seed", range(20))
def test_feedback_without_meaning_never_puts_it_in_use(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranker = Ranker()
    for _ in range(300):
        shown = recalled(rng)
        ranker = learn_from_labels(ranker, shown, [int(index) for index in rng.choice(10, 2, replace=False)])
        ranker, _ = learn_from_reward(ranker, shown, float(rng.normal()))
        assert not ranker.active


def test_what_helped_may_change_and_it_goes_back_into_the_shadow() -> None:
    rng = np.random.default_rng(4)
    ranker = Ranker(weights=tuple(-weight_vector(STATIC)), active=True, feedbacks=500, evidence=9.0)
    seen = []
    for _ in range(60):
        shown = recalled(rng)
        ranker = learn_from_labels(ranker, shown, [0, 1, 2])
        seen.append(ranker.active)
    assert seen[0]
    assert not all(seen), "static was right all along, and that was noticed"


def test_rewards_alone_teach_what_exploring_brought() -> None:
    rng = np.random.default_rng(9)
    truth = weight_vector({"importance": 1.0})
    ranker = Ranker()
    for _ in range(3000):
        ranked = recalled(rng)
        order, chances = explore(30, 10, rng.random(), rng.random())
        shown = Shown(ranked.features[order], 10, np.array(chances))
        reward = float((shown.features[:10] @ truth).mean() + 0.1 * rng.normal())
        ranker, _ = learn_from_reward(ranker, shown, reward)
    moved = np.array(ranker.weights) - weight_vector(STATIC)
    assert int(np.argmax(moved)) == SIGNALS.index("importance")


@given(st.integers(0, 40), st.integers(1, 20), st.floats(0, 0.999), st.floats(0, 0.999))
def test_exploring_shows_each_memory_once_with_the_probability_it_says(
    n: int, k: int, draw: float, pick: float
) -> None:
    order, chances = explore(n, k, draw, pick)
    assert sorted(order) == list(range(n))
    assert len(chances) == n
    assert sum(chances) == pytest.approx(min(n, k))
    assert order[: k - 1] == list(range(min(k - 1, n)))
    if draw >= EXPLORED:
        assert order == list(range(n))


@given(st.integers(1, 50), st.floats(-1, 1))
def test_credit_adds_up_and_the_first_gets_most(k: int, advantage: float) -> None:
    shares = credits(k, advantage)
    assert sum(shares) == pytest.approx(advantage)
    assert abs(shares[0]) == max(abs(share) for share in shares)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_utility_stays_within_one(helped: float, hurt: float) -> None:
    assert -1 <= utility(helped, hurt) <= 1


async def give(api: Api, status: int = 200, **body: Any) -> Any:
    return await api.call("POST", "/api/v1/memory/feedback", status, json=body)


async def test_what_helped_comes_to_the_top(api: Api) -> None:
    ids = await store(api, "tutor", [f"hint about the maze number {index}" for index in range(30)])
    wanted = ids[7]
    for _ in range(12):
        answer = await ask(api, "tutor", "maze hint", k=30)
        await give(api, retrieval_id=answer["retrieval_id"], helpful=[wanted])
    top = {memory["id"]: memory for memory in (await ask(api, "tutor", "maze hint", k=3))["memories"]}
    assert top[wanted]["signals"]["utility"] > 3
    state = await api.call("GET", "/api/v1/memory/ranker?agent_id=tutor")
    assert state["feedbacks"] == 12
    assert state["weights"]["utility"] > STATIC["utility"]


async def test_a_recall_teaches_once(api: Api) -> None:
    await store(api, "once", ["a", "b"])
    answer = await ask(api, "once", "a")
    first = await give(api, retrieval_id=answer["retrieval_id"], reward=1.0)
    again = await give(api, retrieval_id=answer["retrieval_id"], reward=1.0)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["feedbacks"] == again["feedbacks"] == 1


async def test_feedback_that_cannot_be_is_refused(api: Api) -> None:
    await store(api, "strict", ["a"])
    answer = await ask(api, "strict", "a")
    await give(api, 404, retrieval_id=str(uuid4()), reward=1.0)
    refused = await give(api, 422, retrieval_id=answer["retrieval_id"], helpful=[str(uuid4())])
    assert refused["error"]["field"] == "helpful"
    assert (await give(api, 422, retrieval_id=answer["retrieval_id"]))["error"]["field"] == "reward"
    body = {"retrieval_id": answer["retrieval_id"], "reward": 1.0}
    await api.call("POST", "/api/v1/memory/feedback", 404, namespace="team-b", json=body)


async def test_the_reward_of_an_episode_reaches_the_memories_it_recalled(api: Api) -> None:
    [identity] = await store(api, "learner", ["go left at the fork"])
    await api.call("PUT", "/api/v1/rewards/policies/rp/revisions/1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/learner", json={"reward_policy": "rp", "reward_policy_revision": "1"})
    for index, (returned, recalls) in enumerate([(1.0, 0), (9.0, 1), (1.0, 0), (9.0, 1)]):
        retrieval_ids = [(await ask(api, "learner", "fork"))["retrieval_id"]] if recalls else []
        body = trajectory(f"learn-{index}", "learner", returned, retrieval_ids=retrieval_ids)
        await api.call("POST", "/api/v1/trajectories", 202, json=body)

    async def credited() -> bool:
        async with api.service.db.tenant("team-a") as connection:
            taught = await connection.fetchval("SELECT count(*) FROM recall_log WHERE reward IS NOT NULL")
            helped = await connection.fetchval("SELECT helped FROM memory_use WHERE memory_id = $1", identity)
        return taught >= 2 and helped is not None

    await eventually(credited)
