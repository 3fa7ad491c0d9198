"""Stable answers those that know no episodes and reach a canary that may not answer them."""

from collections.abc import Callable
from typing import Any

import pytest
from policy_world import CANARY, STABLE, LiveServer, table

INFER = "/v2/models/cart/infer"
BODY = {"inputs": [{"name": "observation", "datatype": "FP32", "shape": [1, 4], "data": [0.0] * 4}]}
PAST, FUTURE = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"


@pytest.fixture
def arms(start: Callable[..., LiveServer]) -> Callable[..., tuple[LiveServer, LiveServer]]:
    """Stable and canary, with half of the traffic each, that read the same table."""

    def begin(**fields: Any) -> tuple[LiveServer, LiveServer]:
        stable, canary = start(mode="gateway"), start(mode="gateway", revision=CANARY)
        for server in (stable, canary):
            server.route(table((STABLE, "stable", 50, stable.url), (CANARY, "canary", 50, canary.url), **fields))
        return stable, canary

    return begin


def test_an_expired_canary_hands_inference_on_to_stable_and_counts_none_of_it(arms: Any) -> None:
    stable, canary = arms(expires_at=PAST)
    assert canary.post(INFER, BODY).json()["model_version"] == STABLE
    assert stable.post(INFER, BODY).json()["model_version"] == STABLE
    count = "learnloop_policy_request_duration_seconds_count"
    assert canary.metric(count, verb="infer") == 0
    assert stable.metric(count, verb="infer") == 2


def test_what_stable_refuses_is_passed_on_as_it_is(arms: Any) -> None:
    _, canary = arms(expires_at=PAST)
    refused = canary.post(INFER, {"inputs": []})
    assert refused.status_code == 400
    assert "inputs" in refused.json()["error"]


def test_a_canary_answers_itself_as_long_as_the_table_is_good(arms: Any) -> None:
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
