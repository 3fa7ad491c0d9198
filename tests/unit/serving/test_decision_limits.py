"""spec.decisionLimits: a server gives its part and no more, says when to come back, and blames no arm."""

import pytest

from learnloop_serving.episodes import DecisionBuckets
from learnloop_serving.refusals import Refusal
from learnloop_serving.routing_table_in_force import RoutingState
from learnloop_serving.server_metrics import Metrics
from testing.servers.policy_servers import STABLE, LiveServer, table

LEFT = [1.0, 0.0, 0.0, 0.0]


def limited(share: float = 1.0, **limits: float) -> str:
    arm = {"revision": STABLE, "role": "stable", "weight": 100, "url": "http://x", "share": share}
    return table(arms=[arm], limits=limits)


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def limits(clock: list[float]) -> tuple[RoutingState, DecisionBuckets]:
    routing = RoutingState("cart", Metrics("cart", STABLE))
    return routing, DecisionBuckets(STABLE, routing, lambda: clock[0])


def given(limits: DecisionBuckets, decisions: int, tag: str = "") -> tuple[int, int]:
    """How many of `decisions` decisions are given, and the wait that the last refusal tells."""
    count = wait = 0
    for _ in range(decisions):
        try:
            limits.take(tag)
            count += 1
        except Refusal as refusal:
            kind, wait = (refusal.status, refusal.apart), refusal.retry_after
            if kind != (429, "throttled"):
                raise
    return count, wait


def test_a_server_gives_its_part_of_a_second_and_then_as_many_as_come_back(limits, clock):
    routing, agent_limits = limits
    assert routing.offer(limited(0.25, per_second=40), "test")
    assert given(agent_limits, 100) == (10, 1)
    total = 0
    for _ in range(100):
        clock[0] += 0.1
        total += given(agent_limits, 5)[0]
    assert total == pytest.approx(100, abs=1), "10 s of a quarter of 40 a second"


def test_each_agent_has_its_own_part_and_all_share_the_whole(limits, clock):
    routing, agent_limits = limits
    assert routing.offer(limited(per_second=12, per_agent_per_second=5), "test")
    assert [given(agent_limits, 20, tag)[0] for tag in ("a", "b", "c")] == [5, 5, 2]
    clock[0] += 100
    assert given(agent_limits, 20, "c")[0] == 5
    assert routing.offer(limited(per_second=12, per_agent_per_second=5) + " ", "test")
    assert given(agent_limits, 1, "c")[0] == 0, "a table that says the same gives nothing back"
    assert routing.offer(table((STABLE, "stable", 100)), "test")
    assert given(agent_limits, 1000, "c")[0] == 1000


@pytest.mark.parametrize("bound", ["per_second", "per_agent_per_second"])
def test_a_part_that_changes_again_and_again_gives_no_second_worth_anew(limits, clock, bound):
    routing, agent_limits = limits
    total = 0
    for step in range(40):  # four seconds in which pods come and go
        assert routing.offer(limited((0.5, 0.25, 1.0)[step % 3], **{bound: 20}), "test")
        total += given(agent_limits, 50, "a")[0]
        clock[0] += 0.1
    assert total <= 20 + 4 * 20 * (0.5 + 0.25 + 1.0) / 3


def test_a_small_part_is_one_decision_in_a_while(limits, clock):
    routing, agent_limits = limits
    assert routing.offer(limited(0.5, per_second=0.1), "test")
    assert given(agent_limits, 3) == (1, 20)
    clock[0] += 100
    assert routing.offer(limited(1.0, per_second=5e-324), "test")
    assert given(agent_limits, 2) == (1, 60), "no caller waits for an eternity"


def test_a_throttled_request_says_when_to_come_back_and_nothing_of_the_arm(server: LiveServer) -> None:
    server.route(limited(per_second=1))
    episode = server.opened()
    seconds, apart = "learnloop_policy_request_duration_seconds_count", "learnloop_requests_uncounted_total"
    observed, throttled = server.metric(seconds, verb="act"), server.metric(apart, verb="act", reason="throttled")
    answers = [act(server, episode) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 429, 429, 429]
    assert answers[-1].headers["retry-after"] == "1"
    assert (answers[-1].json()["reason"], answers[-1].json()["retry_after"]) == ("Throttled", 1)
    assert server.metric(seconds, verb="act") == observed + 1
    assert server.metric(apart, verb="act", reason="throttled") == throttled + 3
    body = {"inputs": [{"name": "observation", "datatype": "FP32", "shape": [1, 4], "data": LEFT}]}
    inferred = server.post("/v2/models/cart/infer", body)
    assert (inferred.status_code, inferred.headers["retry-after"]) == (429, "1")
    errors = server.metric("learnloop_episodes_ended_total", outcome="error")
    ending = {"status": "error", "episode_return": 0.0, "length": 1}
    assert server.post(f"/v1/episodes/{episode}/end", ending).json() == {"counted": True}
    assert server.metric("learnloop_episodes_ended_total", outcome="error") == errors, "an agent that gave up waiting"


def act(server: LiveServer, episode: str):
    return server.post(f"/v1/episodes/{episode}/act", {"observation": LEFT})
