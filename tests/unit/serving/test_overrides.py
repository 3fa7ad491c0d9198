"""A person decides in the policy's place: the answers to callers, and no evidence for any arm."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from learnloop_api.wire.routing import ActResponse, agent_tag
from testing.servers.policy_servers import STABLE, LiveServer, table

LEFT = [1.0, 0.0, 0.0, 0.0]


def ordered(instead: str, seconds: float = 60, since: float = -1, **fields) -> dict:
    now = datetime.now(UTC)
    since_, until = (now + timedelta(seconds=each) for each in (since, seconds))
    override = {"since": since_.isoformat(), "until": until.isoformat(), "reason": "it hurts", "by": "alice"}
    return {"instead": instead} | override | fields


def order(server: LiveServer, *overrides: dict) -> None:
    server.route(table((STABLE, "stable", 100, server.url), overrides=list(overrides) or None))


def opened(server: LiveServer, agent: str = "cart") -> str:
    return str(server.post("/v1/episodes", {"agent": agent}).json()["episode_id"])


def act(server: LiveServer, episode: str):
    return server.post(f"/v1/episodes/{episode}/act", {"observation": LEFT, "explore": False})


def end(server: LiveServer, episode: str):
    ending = {"status": "completed", "episode_return": 5.0, "length": 1, "success": True}
    return server.post(f"/v1/episodes/{episode}/end", ending).json()


def test_a_fixed_action_is_given_at_once_and_counts_for_no_arm(server: LiveServer) -> None:
    episode = opened(server)
    assert act(server, episode).json()["action"] == 0
    seconds, gain = "learnloop_policy_request_duration_seconds_count", "learnloop_episode_return_gain_total"
    answers, gained = server.metric(seconds, verb="act"), server.metric(gain)
    apart = server.metric("learnloop_requests_uncounted_total", verb="act", reason="overridden")
    withdrawn = server.metric("learnloop_episodes_ended_total", outcome="withdrawn")
    order(server, ordered("fixed", choice=1))
    answer = ActResponse.model_validate_json(act(server, episode).content)
    assert (answer.action, answer.log_prob, answer.exploration, answer.override) == (1, 0.0, False, "fixed")
    assert end(server, episode) == {"counted": True}
    assert server.metric(seconds, verb="act") == answers
    assert server.metric("learnloop_requests_uncounted_total", verb="act", reason="overridden") == apart + 1
    assert server.metric("learnloop_episodes_ended_total", outcome="withdrawn") == withdrawn + 1
    assert server.metric(gain) == gained


def test_numbers_are_given_as_they_were_ordered(server: LiveServer) -> None:
    order(server, ordered("fixed", numbers=[0.5, -1.0]))
    assert act(server, opened(server)).json()["action"] == [0.5, -1.0]


@pytest.mark.parametrize(
    ("instead", "status", "reason"), [("stop", 403, "Stopped"), ("fallback", 409, "FallbackOrdered")]
)
def test_nobody_is_answered_where_a_person_says_so(server: LiveServer, instead: str, status: int, reason: str) -> None:
    episode = opened(server)
    order(server, ordered(instead))
    answers = act(server, episode), server.post("/v1/episodes", {"agent": "cart"})
    inferred = server.post("/v2/models/cart/infer", {"inputs": []})
    for answer in answers:
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)
        assert "as ordered by alice until" in answer.json()["message"]
        assert answer.json()["message"].endswith(": it hurts")
    assert inferred.status_code == status


def test_a_tensor_of_a_fixed_action_is_refused_rather_than_the_policys(server: LiveServer) -> None:
    order(server, ordered("fixed", choice=1))
    body = {"inputs": [{"name": "observation", "datatype": "FP32", "shape": [1, 4], "data": LEFT}]}
    assert server.post("/v2/models/cart/infer", body).status_code == 403


def test_one_agents_override_leaves_the_others_alone(server: LiveServer) -> None:
    own, other = opened(server, "cart"), opened(server, "pole")
    order(server, ordered("stop", agent="cart"))
    assert act(server, own).status_code == 403
    assert act(server, other).json()["action"] == 0
    assert end(server, other) == {"counted": True}
    assert server.arm.episodes.ids.read(own).tag == agent_tag("cart")


def test_the_most_cautious_order_is_obeyed_and_the_agents_own_first(server: LiveServer) -> None:
    episode = opened(server)
    order(server, ordered("fixed", choice=1), ordered("fixed", choice=0, agent="cart"))
    assert act(server, episode).json()["action"] == 0
    order(server, ordered("fixed", choice=1, agent="cart"), ordered("stop"))
    assert act(server, episode).status_code == 403


def test_it_ends_by_itself_and_what_it_has_touched_stays_withdrawn(server: LiveServer) -> None:
    episode = opened(server)
    order(server, ordered("stop", seconds=0.3))
    assert act(server, episode).status_code == 403
    time.sleep(0.35)
    assert act(server, episode).status_code == 200
    withdrawn = server.metric("learnloop_episodes_ended_total", outcome="withdrawn")
    end(server, episode)
    assert server.metric("learnloop_episodes_ended_total", outcome="withdrawn") == withdrawn + 1


def test_an_episode_after_its_end_is_evidence_again(server: LiveServer) -> None:
    order(server, ordered("stop", since=-100, seconds=-50, over=True))
    episode = opened(server)
    success = server.metric("learnloop_episodes_ended_total", outcome="success")
    end(server, episode)
    assert server.metric("learnloop_episodes_ended_total", outcome="success") == success + 1
