"""A person decides in the policy's place: what the table says, for how long, and what is on record."""

from datetime import timedelta
from urllib.parse import urlencode

import pytest

from learnloop_api.names import ANNOTATION_OVERRIDE
from learnloop_api.wire.routing import Override, RoutingTable
from learnloop_operator.rollout.children.routing import read
from testing.simulation.rollout_cluster import BETTER, Cluster, uri

from .test_orders import last, until


def order(cluster: Cluster, instead: str, minutes: float = 10, **fields: str) -> None:
    cluster.now += timedelta(seconds=1)
    ends = (cluster.now + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    request = {"instead": instead, "until": ends, "reason": "it hurts people"} | fields
    cluster.annotations[ANNOTATION_OVERRIDE] = f"{urlencode(request)} at {cluster.now.isoformat()} by alice"


def table(cluster: Cluster) -> RoutingTable:
    routing = read(cluster.config_map).table
    assert routing is not None
    return routing


def in_force(cluster: Cluster) -> list[Override]:
    return [one for one in table(cluster).overrides or () if one.in_force(cluster.now)]


@pytest.fixture
def serving() -> Cluster:
    cluster = Cluster()
    cluster.run(10)
    return cluster


def test_the_next_look_writes_the_order_with_name_reason_and_end(serving: Cluster) -> None:
    before = table(serving).generation
    order(serving, "fixed", choice="1", agent="cart")
    serving.reconcile()
    (override,) = in_force(serving)
    assert (override.agent, override.instead, override.choice, override.by) == ("cart", "fixed", 1, "alice")
    assert "by alice until" in override.sentence()
    assert override.sentence().endswith(": it hurts people")
    assert table(serving).generation == before + 1
    assert (last(serving)["verb"], last(serving)["outcome"]) == ("override", "obeyed")
    condition = next(item for item in serving.status["conditions"] if item["type"] == "Overridden")
    assert (condition["status"], condition["reason"]) == ("True", "InForce")
    serving.reconcile()
    assert table(serving).generation == before + 1, "it is written once"


def test_it_ends_by_itself_and_is_kept_for_a_day(serving: Cluster) -> None:
    order(serving, "stop", minutes=5)
    serving.reconcile()
    (override,) = in_force(serving)
    assert not override.in_force(override.until), "servers need no operator for it"
    serving.now += timedelta(minutes=6)
    serving.reconcile()
    assert not in_force(serving)
    assert [one.over for one in table(serving).overrides or ()] == [True]
    assert next(item["status"] for item in serving.status["conditions"] if item["type"] == "Overridden") == "False"
    serving.now += timedelta(hours=25)
    serving.reconcile()
    assert table(serving).overrides is None
    assert "overrides" not in serving.status


def test_a_person_ends_it_and_another_order_takes_its_place(serving: Cluster) -> None:
    order(serving, "stop", agent="cart")
    serving.reconcile()
    order(serving, "stop")
    serving.reconcile()
    assert [one.agent for one in in_force(serving)] == ["cart", None]
    order(serving, "fallback", agent="cart")
    serving.reconcile()
    assert [(one.agent, one.instead) for one in in_force(serving)] == [(None, "stop"), ("cart", "fallback")]
    order(serving, "none")
    serving.reconcile()
    assert [one.agent for one in in_force(serving)] == ["cart"]
    order(serving, "none")
    serving.reconcile()
    assert (last(serving)["outcome"], last(serving)["message"]) == ("ignored", "nothing is ordered for all agents")


def test_it_is_obeyed_while_suspended_and_the_rollout_goes_on_beneath_it() -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    until(cluster, 10)
    order(cluster, "fallback", minutes=600, agent="cart")
    cluster.spec["suspend"] = True
    cluster.reconcile()
    assert [one.instead for one in in_force(cluster)] == ["fallback"]
    cluster.spec.pop("suspend")
    cluster.run(1)
    assert cluster.settle() == "Healthy"
    assert cluster.weight(uri(1)) == 100
    assert [one.instead for one in in_force(cluster)] == ["fallback"]


@pytest.mark.parametrize("ahead", [-300.0, 0.0, 300.0])
def test_its_end_is_the_api_servers_and_a_leader_with_another_clock_does_not_move_it(serving, ahead):
    serving.ahead = ahead
    start = serving.now
    order_for(serving, 90)
    serving.reconcile()
    (override,) = table(serving).overrides or ()
    assert 90 <= (override.until - start - timedelta(seconds=ahead + 1)).total_seconds() <= 91
    for passed in (1, 80):  # the next leader's own clock says another time, and the API server's goes on
        serving.now, serving.ahead = start + timedelta(seconds=passed - ahead), 2 * ahead
        serving.reconcile()
        assert [one.over for one in table(serving).overrides or ()] == [False]
    serving.now = start + timedelta(seconds=95 - ahead)
    serving.reconcile()
    assert [one.over for one in table(serving).overrides or ()] == [True]


def order_for(cluster: Cluster, seconds: int) -> None:
    cluster.now += timedelta(seconds=1)
    what = urlencode({"instead": "stop", "for": seconds, "reason": "it hurts people"})
    cluster.annotations[ANNOTATION_OVERRIDE] = f"{what} at {cluster.now.isoformat()} by alice"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"instead": "fixed"}, "fixed takes one of choice, numbers and answer"),
        ({"instead": "stop", "choice": "1"}, "nothing else takes any"),
        ({"instead": "fixed", "choice": "left"}, "choice: 'left' is not a whole number"),
        ({"instead": "fixed", "numbers": "1,x"}, "give numbers with commas"),
        ({"instead": "fixed", "numbers": "nan"}, "numbers"),
        ({"instead": "fixed", "answer": "no"}, "any other policy's is `choice` or `numbers`"),
        ({"instead": "dance"}, "instead"),
        ({"instead": "stop", "reason": " "}, "reason: missing"),
        ({"instead": "stop", "until": "soon"}, "is not a time"),
        ({"instead": "stop", "until": "2020-01-01T00:00:00Z"}, "not within the next seven days"),
        ({"instead": "stop", "for": "60"}, "for says it too"),
        ({"instead": "stop", "until": "", "for": "0"}, "is not a number of seconds"),
        ({"instead": "stop", "until": "", "for": "9999999"}, "is not a number of seconds"),
        ({"instead": "stop", "until": "", "for": "-5"}, "is not a number of seconds"),
        ({"instead": "stop", "agent": "No Name"}, "agent"),
        ({"instead": "stop", "who": "me"}, "'who' is not a field"),
        ({"instead": "stop", "reason": "x" * 1100}, "shorter reason"),
    ],
)
def test_what_cannot_be_obeyed_is_ignored_with_a_sentence(serving: Cluster, fields: dict, says: str) -> None:
    order(serving, **fields)
    serving.reconcile()
    assert not in_force(serving)
    assert last(serving)["outcome"] == "ignored"
    assert says in last(serving)["message"]
    decisions = len(serving.status["decisions"])
    serving.reconcile()
    assert len(serving.status["decisions"]) == decisions, "every value is answered once"
