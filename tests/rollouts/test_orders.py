"""People in a rollout: what each verb does, that it does it once, and what is kept of who said it."""

import pytest

from learnloop_api.names import VERBS, verb_annotation
from learnloop_operator.rollout.children.routing import read as table_of
from learnloop_operator.rollout.state.orders import NEWEST, read
from testing.simulation.rollout_cluster import BAD, BETTER, STEPS, Cluster, uri


def say(cluster: Cluster, verb: str, what: str, by: str = "alice") -> None:
    """An order as `kubectl learnloop` writes it."""
    cluster.annotations[verb_annotation(verb)] = f"{what} at {cluster.now.isoformat()} by {by}"


def last(cluster: Cluster) -> dict:
    return cluster.status["decisions"][-1]


def until(cluster: Cluster, weight: int) -> str:
    """Run to this weight of model 1; its revision."""
    for _ in range(300):
        if cluster.weight(uri(1)) == weight and cluster.status.get("canary"):
            return str(cluster.status["canary"]["revision"])
        cluster.run(1)
    raise AssertionError(cluster.status["verdict"])


@pytest.fixture
def climbing() -> Cluster:
    """A better model at 10 %."""
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    until(cluster, 10)
    return cluster


@pytest.fixture
def promoted() -> Cluster:
    """A better model that was promoted and whose guard is over."""
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    assert cluster.settle() == "Healthy"
    cluster.run(5)
    assert len(cluster.deployments) == 1
    return cluster


def test_a_pause_holds_the_weight_until_it_is_resumed(climbing: Cluster) -> None:
    revision = climbing.status["canary"]["revision"]
    say(climbing, "pause", revision)
    climbing.run(200)
    assert (climbing.weight(uri(1)), climbing.status["phase"]) == (10, "Paused")
    assert "on hold at 10 % since" in climbing.status["verdict"]
    assert "by alice (as claimed)" in climbing.status["verdict"]
    say(climbing, "resume", revision, "bob")
    climbing.run(1)
    assert climbing.settle() == "Healthy"
    assert [(item["verb"], item["by"], item["outcome"]) for item in climbing.status["decisions"]] == [
        ("pause", "alice", "obeyed"),
        ("resume", "bob", "obeyed"),
    ]


def test_a_canary_that_is_put_on_hold_before_its_pods_are_ready_gets_no_episode_until_it_is_resumed() -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    while not cluster.status.get("canary"):
        cluster.reconcile()
    revision = cluster.status["canary"]["revision"]
    say(cluster, "pause", revision)
    cluster.run(60)
    assert (cluster.weight(uri(1)), cluster.status["phase"]) == (0, "Paused")
    say(cluster, "resume", revision)
    cluster.run(1)
    assert cluster.settle() == "Healthy"
    assert cluster.status["stable"]["revision"] == revision


def test_a_breach_takes_a_paused_canary_back() -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    say(cluster, "pause", until(cluster, 10))
    cluster.run(20)
    cluster.quality[uri(1)] = BAD
    cluster.run(120)
    assert (cluster.weight(uri(1)), cluster.status["blockedRevision"]["reason"]) == (0, "CheckFailed")


def test_a_rejected_step_is_rolled_back_and_blocked_with_the_name() -> None:
    cluster = Cluster([{**step, "pause": True} for step in STEPS])
    cluster.run(10)
    cluster.wish(1, BETTER)
    cluster.run(90)
    assert cluster.status["phase"] == "Paused"
    say(cluster, "reject", f"{cluster.status['canary']['revision']}/1")
    cluster.run(3)
    block = cluster.status["blockedRevision"]
    assert block["reason"] == "Rejected"
    assert block["message"] == "RolledBack at 10 %: step 1 was rejected by alice (as claimed)"
    assert cluster.weight(uri(1)) == 0


def test_a_step_that_waits_for_nobody_cannot_be_rejected(climbing: Cluster) -> None:
    say(climbing, "reject", f"{climbing.status['canary']['revision']}/1")
    climbing.run(1)
    assert climbing.status["canary"]
    assert last(climbing)["outcome"] == "ignored"
    assert "waits for no approval; `kubectl learnloop abort" in last(climbing)["message"]


def test_a_promotion_by_hand_skips_the_evidence_and_says_so(climbing: Cluster) -> None:
    climbing.traffic = False
    climbing.check_promotion = lambda revision: None  # that is the point
    climbing.check_step = lambda before, after: None
    say(climbing, "promote", climbing.status["canary"]["revision"])
    climbing.run(3)
    assert climbing.weight(uri(1)) == 100
    assert climbing.status["phase"] == "Guarding"
    assert "PromotedByHand" in climbing.events
    assert last(climbing)["message"].endswith("without the evidence of the remaining steps")


def test_nobody_promotes_a_canary_that_a_check_finds_bad(climbing: Cluster) -> None:
    while not any(item.get("counted") for item in climbing.status.get("evidence") or ()):
        climbing.run(1)
    climbing.quality[uri(1)] = -9000.0
    climbing.tick(25)
    say(climbing, "promote", climbing.status["canary"]["revision"])
    climbing.run(2)
    assert climbing.weight(uri(1)) == 0
    assert last(climbing)["outcome"] == "refused"
    assert last(climbing)["message"].startswith("a check is breached: return of the canary")


def test_a_canary_on_hold_is_not_promoted(climbing: Cluster) -> None:
    revision = climbing.status["canary"]["revision"]
    say(climbing, "pause", revision)
    climbing.run(1)
    say(climbing, "promote", revision, "bob")
    climbing.run(2)
    assert climbing.weight(uri(1)) == 10
    assert last(climbing)["message"] == "on hold by alice (as claimed): resume it first"


def test_a_skipped_step_counts_for_that_step_only(climbing: Cluster) -> None:
    climbing.check_step = lambda before, after: None  # this step has no evidence
    climbing.traffic = False
    say(climbing, "skip", f"{climbing.status['canary']['revision']}/1")
    climbing.run(60)
    assert climbing.weight(uri(1)) == 25
    assert climbing.status["step"] == 1


def test_a_restart_begins_at_the_first_step_without_the_old_evidence(climbing: Cluster) -> None:
    revision, began = until(climbing, 25), climbing.status["rolloutStartedAt"]
    say(climbing, "restart", revision)
    climbing.run(2)
    assert climbing.status["canary"]["revision"] == revision
    assert climbing.status["rolloutStartedAt"] > began
    assert climbing.weight(uri(1)) in (0, 10)
    assert climbing.settle() == "Healthy"


def test_undo_gives_the_place_back_to_the_warm_arm_by_one_routing_write() -> None:
    cluster = Cluster(keep=600)
    cluster.run(10)
    cluster.promote(1, BETTER)
    cluster.run(3)
    generation = cluster.status["routingGeneration"]
    say(cluster, "undo", cluster.status["stable"]["revision"])
    cluster.run(1)
    assert cluster.weight(uri(0)) == 100
    assert cluster.status["routingGeneration"] == generation + 1
    assert cluster.status["blockedRevision"]["reason"] == "Undone"


def test_undo_after_the_guard_starts_the_recorded_model_again(promoted: Cluster) -> None:
    gone = promoted.status["stable"]["revision"]
    assert promoted.status["lastStable"]["uri"] == uri(0)
    say(promoted, "undo", gone)
    promoted.run(1)
    assert promoted.weight(uri(1)) == 100, "nothing is taken away before the old model can serve"
    promoted.run(10)
    assert promoted.weight(uri(0)) == 100
    assert promoted.status["stable"]["uri"] == uri(0)
    assert promoted.status["blockedRevision"]["revision"] == gone
    promoted.run(60)
    assert (promoted.status["phase"], len(promoted.deployments)) == ("RolledBack", 1)


def test_undo_without_an_earlier_model_on_record_is_refused_with_the_way_out() -> None:
    cluster = Cluster()
    cluster.run(10)
    say(cluster, "undo", cluster.status["stable"]["revision"])
    cluster.run(1)
    assert last(cluster)["outcome"] == "refused"
    assert "set spec.model to the one to serve" in last(cluster)["message"]


def test_the_most_cautious_of_several_orders_is_obeyed_and_the_others_are_answered(climbing: Cluster) -> None:
    revision = climbing.status["canary"]["revision"]
    for verb in ("promote", "pause", "abort"):
        say(climbing, verb, revision)
    climbing.run(5)
    assert climbing.status["blockedRevision"]["reason"] == "Aborted"
    outcomes = {item["verb"]: item["outcome"] for item in climbing.status["decisions"]}
    assert outcomes == {"abort": "obeyed", "pause": "ignored", "promote": "ignored"}


def test_a_value_for_another_revision_is_told_once_and_changes_nothing(climbing: Cluster) -> None:
    say(climbing, "abort", "00000000")
    climbing.run(5)
    assert climbing.status["canary"]
    assert last(climbing)["message"].startswith("00000000 is not being rolled out: the canary is ")
    assert climbing.events.count("DecisionIgnored") == 1


def test_a_used_value_counts_once_even_for_a_second_try_of_the_same_revision(climbing: Cluster) -> None:
    revision = climbing.status["canary"]["revision"]
    climbing.annotations[verb_annotation("abort")] = revision
    climbing.run(5)
    assert climbing.status["blockedRevision"]["message"].endswith("aborted by an unnamed person")
    climbing.annotations[verb_annotation("retry")] = "again"
    assert climbing.settle() == "Healthy"
    assert climbing.status["stable"]["uri"] == uri(1)


def test_dying_between_the_table_and_the_record_still_records_who_aborted(climbing: Cluster) -> None:
    say(climbing, "abort", climbing.status["canary"]["revision"])
    climbing.reconcile(crash_after=1)
    assert "decisions" not in climbing.status
    climbing.run(3)
    assert (last(climbing)["by"], last(climbing)["outcome"]) == ("alice", "obeyed")


def test_an_approval_in_advance_waits_for_its_pause() -> None:
    cluster = Cluster([{**step, "pause": step["weight"] == 25} for step in STEPS])
    cluster.run(10)
    cluster.wish(1, BETTER)
    say(cluster, "approve", f"{until(cluster, 10)}/2")
    assert cluster.settle() == "Healthy"
    assert last(cluster)["message"] == "step 2 passes at 25 %: approved by alice (as claimed)"


def test_the_record_stays_short_and_keeps_the_last_answer_to_each_verb(climbing: Cluster) -> None:
    say(climbing, "abort", "00000000")
    climbing.run(1)
    for number in range(30):
        climbing.annotations[verb_annotation("undo")] = f"{number:08x}"
        climbing.run(1)
    decisions = climbing.status["decisions"]
    assert len(decisions) == NEWEST + 1
    assert decisions[0]["verb"] == "abort"


def test_an_answered_value_costs_no_further_write(climbing: Cluster) -> None:
    say(climbing, "abort", climbing.status["canary"]["revision"])
    climbing.run(10)
    before = climbing.status
    plan = climbing.reconcile()
    assert (plan.status, plan.events) == (before, ())


def test_a_decision_is_told_for_the_audit_chain_under_an_identity_that_stays(climbing: Cluster) -> None:
    say(climbing, "abort", climbing.status["canary"]["revision"])
    climbing.run(3)
    first, second = (
        [news for news in climbing.reconcile().announcements if "/decisions/" in news.call.path] for _ in range(2)
    )
    (news,) = first
    assert (news.call.body["verb"], news.call.body["by"], news.call.body["outcome"]) == ("abort", "alice", "obeyed")
    assert [item.identity for item in second] == [news.identity]


def test_the_table_never_runs_ahead_of_a_promotion_by_hand(climbing: Cluster) -> None:
    climbing.check_promotion = lambda revision: None  # no evidence is the point
    climbing.check_step = lambda before, after: None
    say(climbing, "promote", climbing.status["canary"]["revision"])
    for writes in (1, 2, 3, 5, 8, 20):
        climbing.reconcile(crash_after=writes)
        table = table_of(climbing.config_map).table
        assert table is not None
        assert sum(arm.weight for arm in table.arms) == 100
        climbing.tick(1)
    climbing.run(5)
    assert climbing.weight(uri(1)) == 100


@pytest.mark.parametrize("verb", VERBS)
def test_every_value_is_read_or_says_what_is_wrong_with_it(verb: str) -> None:
    word = read(verb, "1a2b3c4d/2 at 2026-01-31T12:00:00.000Z by system:serviceaccount:a:b by c")
    assert (word.revision, word.by) == ("1a2b3c4d", "system:serviceaccount:a:b by c")
    assert word.step == (None if verb == "retry" else 2)
    assert verb == "retry" or "names no revision" in read(verb, "yes").problem
    assert verb == "retry" or "is not a step" in read(verb, "1a2b3c4d/zero").problem
