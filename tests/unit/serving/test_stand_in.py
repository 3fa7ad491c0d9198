"""Once the routing table has expired, stable answers even those that reach a canary and know no episodes."""

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


def test_an_expired_canary_without_stable_says_so(start: Callable[..., LiveServer]) -> None:
    canary = start(mode="gateway", revision=CANARY)
    nowhere = "http://127.0.0.1:9"
    canary.route(table((STABLE, "stable", 50, nowhere), (CANARY, "canary", 50, canary.url), expires_at=PAST))
    refused = canary.post(INFER, BODY)
    assert refused.status_code == 503
    assert "stable does not answer" in refused.json()["error"]
