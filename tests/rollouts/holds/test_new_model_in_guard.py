"""A new model while a promoted one is guarded: it waits, and the arm that was proven stays until the guard is over."""

from datetime import datetime, timedelta

import pytest

from learnloop_api.names import verb_annotation
from learnloop_operator.rollout import reasons
from testing.simulation.rollout_cluster import BAD, BETTER, GOOD, LEAST, MODES, Cluster, uri

KEEP = 120


def revision(cluster: Cluster) -> str:
    """Of the model that is asked for."""
    model = cluster.snapshot().desired.model
    return model.revision


def condition(cluster: Cluster, kind: str) -> tuple[str, str]:
    entry = next(item for item in cluster.status["conditions"] if item["type"] == kind)
    return entry["status"], entry["reason"]


@pytest.fixture(params=MODES)
def guarded(request: pytest.FixtureRequest) -> Cluster:
    """Model 1 serves for 20 of its 120 seconds of guard, and model 2 is asked for."""
    cluster = Cluster(keep=KEEP).by(request.param)
    cluster.spec["analysis"]["metrics"] = LEAST
    cluster.run(10)
    cluster.promote(1, BETTER)
    cluster.run(20)
    cluster.wish(2, BETTER)
    cluster.run(5)
    return cluster


def test_it_waits_and_the_sentence_says_for_what_and_until_when(guarded: Cluster) -> None:
    end = datetime.fromisoformat(guarded.status["promotedAt"]) + timedelta(seconds=KEEP)
    stable, old = guarded.status["stable"], guarded.status["previous"]
    assert (stable["uri"], old["uri"], "canary" in guarded.status) == (uri(1), uri(0), False)
    assert guarded.status["phase"] == "Guarding"
    assert guarded.status["verdict"].startswith(
        f"guarding {stable['revision']} until {end:%Y-%m-%dT%H:%M:%SZ}; {revision(guarded)} waits "
        f"(`kubectl learnloop skip md` starts it), {old['revision']} is kept; "
    )
    assert f"md-{old['revision']}" in guarded.deployments
    assert f"md-{revision(guarded)}" not in guarded.deployments


def test_who_waits_for_ready_waits_for_the_model_that_was_asked_for(guarded: Cluster) -> None:
    assert condition(guarded, "Ready") == ("False", reasons.WAITING_FOR_GUARD)
    assert condition(guarded, "Reconciling") == ("True", reasons.WAITING_FOR_GUARD)
    guarded.wish(1, BETTER)
    guarded.run(1)
    assert condition(guarded, "Ready") == ("True", reasons.GUARDING)


def test_it_begins_when_the_guard_is_over(guarded: Cluster) -> None:
    end = datetime.fromisoformat(guarded.status["promotedAt"]) + timedelta(seconds=KEEP)
    while not guarded.status.get("canary"):
        assert guarded.now <= end
        guarded.run(1)
    assert guarded.now > end
    assert guarded.settle() == "Healthy"
    assert (guarded.promotions[1:], guarded.status["stable"]["uri"]) == ([revision(guarded)], uri(2))


def test_a_promoted_model_that_turns_bad_is_still_rolled_back_and_the_new_one_is_compared_with_the_proven_one(guarded):
    bad, proven = guarded.status["stable"]["revision"], guarded.status["previous"]["revision"]
    guarded.quality[uri(1)] = guarded.quality[uri(2)] = BAD
    while guarded.status["stable"]["revision"] == bad:
        guarded.run(1)
    assert guarded.status["blockedRevision"]["revision"] == bad
    while not guarded.status.get("canary"):
        guarded.run(1)
    assert guarded.status["stable"]["revision"] == proven
    assert guarded.settle() == "RolledBack"
    assert (guarded.weight(uri(0)), guarded.status["blockedRevision"]["uri"]) == (100, uri(2))


@pytest.mark.parametrize("verb", ["skip", "promote"])
def test_a_person_who_names_it_ends_the_guard_and_it_begins_as_a_canary_without_episodes(guarded, verb):
    wanted, events = revision(guarded), list[str]()
    guarded.annotations[verb_annotation(verb)] = f"{wanted} at {guarded.now.isoformat()} by alice"
    events += [event.message for event in guarded.reconcile().events if event.reason == "GuardOver"]
    guarded.reconcile()
    assert len(events) == 1
    assert " was ended by alice (as claimed), " in events[0]
    assert guarded.status["decisions"][-1]["outcome"] == "obeyed"
    assert (guarded.status["canary"]["revision"], guarded.weight(uri(2))) == (wanted, 0)
    assert guarded.settle() == "Healthy"
    assert guarded.promotions[1:] == [wanted]


@pytest.mark.parametrize("verb", ["skip", "promote"])
def test_nobody_ends_the_guard_of_a_model_that_a_check_finds_bad(guarded: Cluster, verb: str) -> None:
    bad = guarded.status["stable"]["revision"]
    guarded.quality[uri(1)] = BAD
    guarded.tick(60)
    guarded.annotations[verb_annotation(verb)] = f"{revision(guarded)} at {guarded.now.isoformat()}"
    guarded.reconcile()
    assert guarded.status["decisions"][-1]["outcome"] == "refused"
    assert guarded.status["decisions"][-1]["message"].startswith("a check is breached: RolledBack at 100 %")
    assert guarded.status["blockedRevision"]["revision"] == bad


def test_an_undo_lets_it_begin_beside_the_proven_arm(guarded: Cluster) -> None:
    bad = guarded.status["stable"]["revision"]
    guarded.annotations[verb_annotation("undo")] = bad
    guarded.run(3)
    assert (guarded.status["stable"]["uri"], guarded.status["canary"]["uri"]) == (uri(0), uri(2))
    assert guarded.status["blockedRevision"]["revision"] == bad


def test_while_suspended_it_waits_longer_and_the_guard_still_rolls_back(guarded: Cluster) -> None:
    guarded.spec["suspend"] = True
    guarded.run(KEEP)
    assert (guarded.status["phase"], guarded.status["previous"]["uri"]) == ("Suspended", uri(0))
    guarded.quality[uri(1)] = BAD
    guarded.run(240)
    assert (guarded.status["stable"]["uri"], "canary" in guarded.status) == (uri(0), False)
    guarded.spec["suspend"] = False
    guarded.run(1)
    assert guarded.status["canary"]["uri"] == uri(2)


def test_the_old_model_that_is_wanted_again_while_it_has_no_ready_pod_returns_when_it_has_one(guarded):
    guarded.broken = {guarded.status["previous"]["revision"]}
    guarded.tick(1)
    guarded.wish(0, GOOD)
    guarded.run(30)
    assert guarded.status["stable"]["uri"] == uri(1)
    assert "is wanted again and serves as soon as one of its pods is ready" in guarded.status["verdict"]
    guarded.broken.clear()
    guarded.run(3)
    assert (guarded.status["stable"]["uri"], guarded.status["phase"]) == (uri(0), "Healthy")


def test_where_there_is_nothing_to_take_a_bad_model_back_to_the_sentence_names_the_waiting_one_and_it_may_begin(
    guarded: Cluster,
) -> None:
    guarded.broken = {guarded.status["previous"]["revision"]}
    guarded.quality[uri(1)] = BAD
    while guarded.status["phase"] == "Guarding":
        guarded.run(1)
    wanted = revision(guarded)
    assert guarded.status["phase"] == "Degraded"
    assert f"{wanted} waits (`kubectl learnloop skip md` starts it)" in guarded.status["verdict"]
    guarded.annotations[verb_annotation("skip")] = f"{wanted} at {guarded.now.isoformat()}"
    guarded.run(1)
    assert guarded.status["canary"]["revision"] == wanted
    assert guarded.settle() == "Healthy"
    assert guarded.status["stable"]["revision"] == wanted
