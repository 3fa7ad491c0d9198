"""Whole rollouts against a simulated cluster, case by case; the operator dies wherever it likes."""

import pytest

from learnloop_api import names
from learnloop_operator.rollout.children.routing import read
from learnloop_operator.rollout.decide_deployment import decide
from testing.simulation.rollout_cluster import BAD, BETTER, GOOD, LEAST, MODES, STEPS, Cluster, uri


def served(mode: str) -> Cluster:
    """A cluster that serves its first model."""
    cluster = Cluster().by(mode)
    cluster.run(10)
    assert cluster.status["phase"] == "Healthy"
    return cluster


@pytest.fixture
def serving() -> Cluster:
    """In service mode: what does not touch the routing, or touches it as another test here does."""
    return served("service")


@pytest.fixture(params=MODES)
def either(request: pytest.FixtureRequest) -> Cluster:
    return served(request.param)


def test_the_first_model_serves_every_episode_without_a_canary(serving: Cluster) -> None:
    assert serving.events == ["FirstModelServed"]
    assert serving.weight(uri(0)) == 100


def test_a_better_model_climbs_step_by_step_and_the_old_arm_goes_after_keep_for(either: Cluster) -> None:
    either.wish(1, BETTER)
    weights = []
    for _ in range(400):
        either.run(1)
        if either.weight(uri(1)) not in weights:
            weights.append(either.weight(uri(1)))
        if either.status["phase"] == "Healthy" and either.promotions:
            break
    assert weights == [0, 10, 25, 50, 100]
    assert either.status["stable"]["uri"] == uri(1)
    assert either.status["stable"]["meanReturn"] == BETTER
    either.run(3)
    assert len(either.deployments) == 1


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_episodes_that_ended_before_a_step_do_not_count_for_it_however_late_they_are_seen(lag: int) -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.lag = lag
    cluster.wish(1, BETTER)
    assert cluster.settle() == "Healthy"
    assert cluster.promotions


def test_promotion_changes_nothing_but_replicas_on_any_deployment(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    serving.run(5)
    templates = {name: item["spec"]["template"] for name, item in serving.deployments.items()}
    assert len(templates) == 2
    while not serving.promotions:
        serving.run(1)
        assert {name: item["spec"]["template"] for name, item in serving.deployments.items()} == templates


def test_a_bad_model_is_rolled_back_at_its_first_step_with_numbers_in_the_sentence(either: Cluster) -> None:
    either.wish(1, BAD)
    either.run(90)
    block = either.status["blockedRevision"]
    sentence = "RolledBack at 10 %: return of the canary 9 vs 300 of stable at the same time over "
    assert block["message"].startswith(sentence)
    assert "; bar 0.8×; P(worse at the same time) 0.99" in block["message"]
    assert block["message"].endswith(", 0.998333 needed")
    assert either.status["phase"] == "RolledBack"
    assert either.weight(uri(0)) == 100
    assert len(either.deployments) == 1
    assert either.events.count("RolledBack") == 1


def test_without_prometheus_nothing_is_promoted_and_nothing_is_rolled_back(serving: Cluster) -> None:
    serving.rise(1, BAD, 10)
    serving.prometheus = False
    serving.run(200)
    assert serving.weight(uri(1)) == 10
    assert "no evidence: Prometheus does not answer" in serving.status["verdict"]
    data = next(item for item in serving.status["conditions"] if item["type"] == "DataAvailable")
    assert (data["status"], data["reason"]) == ("Unknown", "ProviderDown")


def test_without_traffic_a_step_holds_and_says_how_much_is_missing(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    serving.traffic = False
    serving.run(200)
    assert serving.weight(uri(1)) == 10
    assert "0 of 6 canary episodes finished, 6 more needed" in serving.status["verdict"]


def test_a_blocked_revision_stays_away_until_it_is_retried(serving: Cluster) -> None:
    serving.wish(1, BAD)
    serving.run(90)
    serving.run(60)
    assert serving.events.count("CanaryCreated") == 1
    serving.quality[uri(1)] = BETTER
    serving.annotations[names.ANNOTATION_RETRY] = "1"
    assert serving.settle() == "Healthy"
    assert serving.status["stable"]["uri"] == uri(1)


def test_a_promoted_model_that_turns_bad_is_swapped_back_by_one_routing_write() -> None:
    cluster = Cluster(keep=600)
    cluster.spec["analysis"]["metrics"] = LEAST
    cluster.run(10)
    cluster.promote(1, BETTER)
    cluster.run(20)
    cluster.quality[uri(1)] = BAD
    generation = cluster.status["routingGeneration"]
    while cluster.status["phase"] == "Guarding":
        cluster.run(1)
    assert cluster.status["blockedRevision"]["message"].startswith("RolledBack at 100 % while guarding: return of")
    assert cluster.status["routingGeneration"] == generation + 1
    assert cluster.weight(uri(0)) == 100


@pytest.mark.parametrize(
    ("observed", "sentence"),
    [(True, " held for 30 s"), (False, " saw no breach, but too little to say that it held: no evidence:")],
)
def test_only_a_guard_that_saw_nothing_is_an_event_and_it_does_not_say_that_the_model_held(observed, sentence):
    cluster = Cluster(keep=30)
    cluster.run(10)
    cluster.promote(1, BETTER)
    cluster.prometheus, events = observed, list[str]()
    while cluster.status.get("previous"):
        events += [event.message for event in cluster.reconcile().events if event.reason == "GuardOver"]
        verdict = cluster.status["verdict"]
        cluster.tick(1)
    assert sentence in verdict
    assert events == ([] if observed else [verdict])
    assert cluster.status["stable"]["uri"] == uri(1)


def test_a_pause_waits_for_its_approval_and_an_approval_counts_once() -> None:
    steps = [{**step, "pause": step["weight"] in (10, 50)} for step in STEPS]
    cluster = Cluster(steps)
    cluster.run(10)
    cluster.wish(1, BETTER)
    cluster.run(120)
    assert (cluster.status["phase"], cluster.weight(uri(1))) == ("Paused", 10)
    revision = cluster.status["canary"]["revision"]
    cluster.annotations[names.ANNOTATION_APPROVE] = revision
    cluster.run(120)
    assert (cluster.status["phase"], cluster.weight(uri(1))) == ("Paused", 50)
    cluster.annotations[names.ANNOTATION_APPROVE] = f"{revision}/3"
    assert cluster.settle() == "Healthy"


def test_an_abort_takes_the_canary_back_at_once(either: Cluster) -> None:
    either.rise(1, BETTER, 10)
    either.annotations[names.ANNOTATION_ABORT] = either.status["canary"]["revision"]
    either.run(1)
    assert either.weight(uri(1)) == 0
    assert either.status["blockedRevision"]["reason"] == "Aborted"


def test_suspend_raises_no_weight_and_renews_the_dead_mans_switch_sparingly(serving: Cluster) -> None:
    serving.rise(1, BETTER, 10)
    serving.spec["suspend"] = True
    before = read(serving.config_map).table
    serving.run(700)
    after = read(serving.config_map).table
    assert before.expires_at is not None
    assert after.expires_at is not None
    assert after.expires_at > serving.now
    assert after.generation - before.generation <= 3
    assert (serving.weight(uri(1)), serving.status["phase"]) == (10, "Suspended")


def test_going_back_to_the_stable_model_withdraws_the_canary_without_blocking_it(serving: Cluster) -> None:
    serving.rise(1, BETTER, 10)
    serving.wish(0, GOOD)
    serving.run(3)
    assert (serving.weight(uri(1)), serving.status["phase"]) == (0, "Healthy")
    assert "blockedRevision" not in serving.status


def test_a_third_model_replaces_the_canary_and_starts_at_the_bottom(either: Cluster) -> None:
    either.rise(1, BETTER, 25)
    either.wish(2, BETTER)
    either.run(1)
    assert either.weight(uri(1)) == 0
    assert "Superseded" in either.events
    assert either.settle() == "Healthy"
    assert either.status["stable"]["uri"] == uri(2)


def test_a_canary_that_never_gets_ready_is_rolled_back_at_its_deadline(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    serving.run(1)
    serving.broken.add(serving.status["canary"]["revision"])
    serving.run(70)
    assert serving.status["blockedRevision"]["reason"] == "ProgressDeadlineExceeded"
    assert "before its first episode" in serving.status["verdict"]


def test_a_quiet_world_costs_no_write(either: Cluster) -> None:
    either.run(5)
    routes, status = [item for item in (either.config_map, either.route) if item], either.status
    plan = either.reconcile()
    assert ([*plan.apply[: len(routes)]], plan.status, plan.events, plan.delete) == (routes, status, (), ())
    either.tick(3600)
    assert either.reconcile().status == status


def test_a_lost_status_does_not_lose_the_arm_that_serves(serving: Cluster) -> None:
    serving.status = {}
    serving.wish(1, BAD)
    serving.run(90)
    assert serving.status["stable"]["uri"] == uri(0)
    assert serving.status["blockedRevision"]["uri"] == uri(1)


@pytest.mark.parametrize("quality", [BETTER, BAD])
@pytest.mark.parametrize("writes", range(14))
def test_dying_after_any_write_of_every_pass_ends_in_the_same_place(quality: float, writes: int) -> None:
    # Each number of writes in one mode for a good model and in the other for a bad one.
    cluster = served(MODES[(writes + (quality == BAD)) % 2])
    cluster.wish(1, quality)
    for number in range(150):
        cluster.reconcile(crash_after=writes if number % 2 else None)
        cluster.tick(1)
    cluster.settle()
    assert cluster.status["stable"]["uri"] == (uri(1) if quality == BETTER else uri(0))
    assert cluster.weight(cluster.status["stable"]["uri"]) == 100


def test_a_rollback_whose_status_was_lost_is_finished_even_when_the_evidence_is_gone(either: Cluster) -> None:
    either.wish(1, BAD)
    while not (either.weight(uri(1)) == 10 and either.snapshot().evidence.arms):
        either.run(1)
    while "blockedRevision" not in decide(either.snapshot()).status:
        either.reconcile()
        either.tick(1)
    either.reconcile(crash_after=1)
    assert "blockedRevision" not in either.status
    assert either.weight(uri(1)) == 0
    either.prometheus = False
    for _ in range(10):
        either.reconcile()
        assert either.weight(uri(1)) == 0
        either.tick(1)
    assert either.status["blockedRevision"]["uri"] == uri(1)


@pytest.mark.parametrize("mode", MODES)
def test_a_swap_back_whose_status_was_lost_is_finished_even_when_the_evidence_is_gone(mode: str) -> None:
    cluster = Cluster(keep=600).by(mode)
    cluster.spec["analysis"]["metrics"] = LEAST
    cluster.run(10)
    cluster.promote(1, BETTER)
    cluster.run(20)
    cluster.quality[uri(1)] = BAD
    while "blockedRevision" not in decide(cluster.snapshot()).status:
        cluster.reconcile()
        cluster.tick(1)
    cluster.reconcile(crash_after=1)
    assert "blockedRevision" not in cluster.status
    cluster.prometheus = False
    for _ in range(10):
        cluster.reconcile()
        assert cluster.weight(uri(0)) == 100
        cluster.tick(1)
    assert cluster.status["blockedRevision"]["uri"] == uri(1)


@pytest.mark.parametrize("quality", [BETTER, BAD])
def test_in_gateway_mode_a_rise_writes_the_table_first_and_a_rollback_the_route(quality: float) -> None:
    cluster = served("gateway")
    cluster.wish(1, quality)
    first = []
    while cluster.status["phase"] not in ("Guarding", "RolledBack"):
        before, plan = cluster.weight(uri(1)), cluster.reconcile()
        if cluster.weight(uri(1)) != before:
            first.append((cluster.weight(uri(1)), plan.apply[0]["kind"]))
        cluster.tick(1)
    rises = [(10, "ConfigMap")] if quality == BAD else [(weight, "ConfigMap") for weight in (10, 25, 50, 100)]
    assert first == rises + ([(0, "HTTPRoute")] if quality == BAD else [])


def test_in_gateway_mode_table_and_route_drop_an_arm_with_its_deployment() -> None:
    cluster = served("gateway")
    cluster.wish(1, BETTER)
    assert cluster.settle() == "Healthy"
    cluster.run(20)
    new, routing = cluster.status["stable"]["revision"], cluster.routing()
    assert routing.table is not None
    assert [arm.revision for arm in routing.table.arms] == [new]
    assert (set(routing.route.weights), set(cluster.deployments)) == ({new}, {f"md-{new}"})


@pytest.mark.parametrize("verb", [names.ANNOTATION_ABORT, names.ANNOTATION_UNDO])
def test_in_gateway_mode_an_arm_that_was_rolled_back_leaves_the_table_at_once(verb: str) -> None:
    cluster = served("gateway")
    cluster.wish(1, BETTER)
    while cluster.status["phase"] != "Guarding":
        cluster.run(1)
    bad = cluster.status["stable"]["revision"]
    cluster.annotations[verb] = bad
    cluster.run(1)
    table = cluster.routing().table
    assert table is not None
    assert bad not in {arm.revision for arm in table.arms}


def conditions(cluster: Cluster) -> dict[str, str]:
    return {item["type"]: item["status"] for item in cluster.status["conditions"]}


def test_a_model_that_only_another_spec_can_mend_is_stalled_and_not_under_way() -> None:
    """kstatus takes Reconciling for progress, and a tool that waits for it waits until its time is up."""
    cluster = Cluster()
    cluster.spec["model"] = {"uri": uri(0)}
    cluster.run(10)
    by_type = conditions(cluster)
    assert "spec.model.sha256: missing" in cluster.status["verdict"]
    assert (by_type["Ready"], by_type["Reconciling"], by_type["Stalled"]) == ("False", "False", "True")


def test_a_model_that_an_agent_has_not_got_yet_is_waited_for() -> None:
    cluster = Cluster()
    cluster.spec["model"] = {"learningAgentRef": {"name": "la"}}
    cluster.run(10)
    by_type = conditions(cluster)
    assert (by_type["Ready"], by_type["Reconciling"], by_type["Stalled"]) == ("False", "True", "False")
