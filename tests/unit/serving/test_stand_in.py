"""Stable answers those that know no episodes and reach a canary that may not answer them."""

from collections.abc import Callable

import pytest

from testing.servers.policy_servers import CANARY, STABLE, LiveServer, table

INFER = "/v2/models/cart/infer"
BODY = {"inputs": [{"name": "observation", "datatype": "FP32", "shape": [1, 4], "data": [0.0] * 4}]}
PAST, FUTURE = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"


@pytest.fixture
def arms(start: Callable[..., LiveServer]) -> Callable[..., tuple[LiveServer, LiveServer]]:
    """Stable and canary, with half of the traffic each, that read the same table."""

    def begin(**fields) -> tuple[LiveServer, LiveServer]:
        stable, canary = start(mode="gateway"), start(mode="gateway", revision=CANARY)
        for server in (stable, canary):
            server.route(table((STABLE, "stable", 50, stable.url), (CANARY, "canary", 50, canary.url), **fields))
        return stable, canary

    return begin


def test_an_expired_canary_hands_inference_on_to_stable_and_counts_none_of_it(arms) -> None:
    stable, canary = arms(expires_at=PAST)
    assert canary.post(INFER, BODY).json()["model_version"] == STABLE
    assert stable.post(INFER, BODY).json()["model_version"] == STABLE
    count = "learnloop_policy_request_duration_seconds_count"
    assert canary.metric(count, verb="infer") == 0
    assert stable.metric(count, verb="infer") == 2


def test_what_stable_refuses_is_passed_on_as_it_is(arms) -> None:
    _, canary = arms(expires_at=PAST)
    refused = canary.post(INFER, {"inputs": []})
    assert refused.status_code == 400
    assert "inputs" in refused.json()["error"]


def test_a_canary_answers_itself_as_long_as_the_table_is_good(arms) -> None:
    _, canary = arms(expires_at=FUTURE)
    assert canary.post(INFER, BODY).json()["model_version"] == CANARY


def test_a_withdrawn_arm_and_one_in_shadow_hand_inference_on(start: Callable[..., LiveServer]) -> None:
    stable, canary = start(), start(revision=CANARY)
    canary.route(table((STABLE, "stable", 100, stable.url)))
    stable.route(table((STABLE, "stable", 100, stable.url)))
    assert canary.post(INFER, BODY).json()["model_version"] == STABLE
    both = ((STABLE, "stable", 100, stable.url), (CANARY, "canary", 0, canary.url))
    canary.route(table(*both, mirror={"revision": CANARY}))
    assert canary.post(INFER, BODY).json()["model_version"] == STABLE


def test_in_service_mode_an_arm_of_weight_0_hands_inference_on_and_counts_none_of_it(start):
    one, other = start(), start(revision=CANARY)
    hold = table((STABLE, "stable", 100, one.url), (CANARY, "canary", 0, other.url))
    guard = table((CANARY, "stable", 100, other.url), (STABLE, "canary", 0, one.url))
    count = "learnloop_policy_request_duration_seconds_count"
    for state, stable, idle in ((hold, one, other), (guard, other, one)):
        before = stable.metric(count, verb="infer"), idle.metric(count, verb="infer")
        for server in (one, other):
            server.route(state)
        versions = [server.post(INFER, BODY).json()["model_version"] for server in (one, other)]
        assert versions == [stable.revision] * 2
        assert (stable.metric(count, verb="infer"), idle.metric(count, verb="infer")) == (before[0] + 2, before[1])


def test_a_canary_answers_as_soon_as_it_has_weight_and_hands_on_again_without_it(start):
    stable, canary = start(), start(revision=CANARY)
    for weight, answers in ((0, STABLE), (1, CANARY), (100, CANARY), (0, STABLE)):
        for server in (stable, canary):
            server.route(table((STABLE, "stable", 100 - weight, stable.url), (CANARY, "canary", weight, canary.url)))
        assert canary.post(INFER, BODY).json()["model_version"] == answers


def test_in_gateway_mode_the_route_has_the_weights_and_a_canary_of_weight_0_in_the_table_answers(start):
    stable, canary = start(mode="gateway"), start(mode="gateway", revision=CANARY)
    both = ((STABLE, "stable", 100, stable.url), (CANARY, "canary", 0, canary.url))
    canary.route(table(*both, mode="gateway"))
    assert canary.post(INFER, BODY).json()["model_version"] == CANARY


def test_an_episode_goes_on_at_the_arm_that_has_lost_its_weight(start: Callable[..., LiveServer]) -> None:
    stable, canary = start(), start(revision=CANARY)
    canary.route(table((STABLE, "stable", 0, stable.url), (CANARY, "canary", 100, canary.url)))
    canary.route(table((STABLE, "stable", 100, stable.url), (CANARY, "canary", 0, canary.url)))
    episode = canary.opened()
    acted = canary.post(f"/v1/episodes/{episode}/act", {"observation": [0.0] * 4})
    assert (acted.status_code, acted.json()["revision"]) == (200, CANARY)
    ending = {"status": "completed", "episode_return": 1.0, "length": 1}
    assert canary.post(f"/v1/episodes/{episode}/end", ending).status_code == 200
    assert canary.metric("learnloop_episodes_ended_total", outcome="success") == 1


def test_who_names_the_revision_gets_it_also_at_weight_0(start: Callable[..., LiveServer]) -> None:
    stable, canary = start(), start(revision=CANARY)
    canary.route(table((STABLE, "stable", 100, stable.url), (CANARY, "canary", 0, canary.url)))
    versioned = f"/v2/models/cart/versions/{CANARY}/infer"
    assert canary.post(versioned, BODY).json()["model_version"] == CANARY
    assert canary.post(INFER, BODY, **{"x-learnloop-arm": CANARY}).json()["model_version"] == CANARY


def test_who_names_an_arm_is_never_sent_elsewhere_so_two_arms_never_play_ball(start: Callable[..., LiveServer]) -> None:
    one, other = start(), start(revision=CANARY)
    one.route(table((CANARY, "stable", 100, other.url)))
    other.route(table((STABLE, "stable", 100, one.url)))
    assert one.post(INFER, BODY).status_code == 410
    assert one.post(INFER, BODY, **{"x-learnloop-arm": STABLE}).status_code == 410


def test_an_expired_canary_without_stable_says_so(start: Callable[..., LiveServer]) -> None:
    canary = start(mode="gateway", revision=CANARY)
    nowhere = "http://127.0.0.1:9"
    canary.route(table((STABLE, "stable", 50, nowhere), (CANARY, "canary", 50, canary.url), expires_at=PAST))
    refused = canary.post(INFER, BODY)
    assert refused.status_code == 503
    assert "stable does not answer" in refused.json()["error"]
