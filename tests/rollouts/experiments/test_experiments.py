"""Experiments in whole simulated rollouts: several models side by side, a winner by proof or none at all."""

import math
from datetime import timedelta

import numpy as np
import pytest

from learnloop_api import names
from learnloop_operator.rollout.children.routing import read
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.statistics import several_arms
from learnloop_operator.statistics.e_values import Counts
from testing.simulation.experiment_cluster import ExperimentCluster, arms_of
from testing.simulation.rollout_cluster import MODES, digest, uri


def test_the_split_is_as_asked_and_the_best_arm_is_promoted_without_a_restart() -> None:
    cluster = ExperimentCluster((0.6, 0.4, 0.85)).start()
    cluster.run(5)
    assert cluster.weights() == {uri(0): 100}, "no arm gets an episode before all of them have pods"
    cluster.run(10)
    assert cluster.weights() == {uri(0): 50, uri(1): 25, uri(2): 25}
    assert cluster.status["stepText"] == "experiment"
    templates = {name: item["spec"]["template"] for name, item in cluster.deployments.items()}
    cluster.finish()
    assert cluster.status["stable"]["uri"] == uri(2)
    assert cluster.status["experiment"]["winner"] == "b"
    assert cluster.weights() == {uri(2): 100}
    name, arm = next(iter(cluster.deployments.items()))
    assert len(cluster.deployments) == 1
    assert arm["spec"]["template"] == templates[name], "the winner's pods restarted"
    assert cluster.arm("a")["message"].startswith("beaten by ")
    assert "Promoted" in cluster.events


def test_the_winner_keeps_serving_although_spec_model_names_the_old_one_and_when_it_names_the_winner() -> None:
    cluster = ExperimentCluster((0.5, 0.9), (40,)).start()
    cluster.finish()
    cluster.run(120)
    assert (cluster.status["stable"]["uri"], cluster.status["phase"]) == (uri(1), "Healthy")
    assert cluster.events.count("CanaryCreated") == 0
    cluster.wish(1, 0.9)
    cluster.run(60)
    assert (cluster.status["stable"]["uri"], cluster.status["phase"]) == (uri(1), "Healthy")
    assert cluster.events.count("ExperimentStarted") == 1


def test_a_winner_that_breaks_a_ratio_of_the_analysis_does_not_serve() -> None:
    """A2: it won by return, and as a canary it would have been rolled back for its successes."""
    cluster = ExperimentCluster((0.5, 0.9), (50,))
    cluster.success = {uri(0): 1.0, uri(1): 0.75}
    cluster.spec["analysis"]["metrics"] = [{"name": "ok", "type": "success", "minRatio": 0.9, "minEpisodes": 5}]
    cluster.start().finish()
    assert cluster.status["stable"]["uri"] == uri(0)
    message = cluster.status["experiment"]["message"]
    assert message.startswith("experiment over, stable keeps serving: a won and may not serve: success rate of a 0.7")
    assert "bar 0.9×" in message


def test_a_winner_that_is_worse_by_the_maxdrop_of_a_sequential_metric_does_not_serve() -> None:
    cluster = ExperimentCluster((0.5, 0.9), (50,))
    cluster.success = {uri(0): 1.0, uri(1): 0.75}
    tested = {"name": "ok", "type": "success", "test": "sequential", "maxDrop": 0.1}
    cluster.spec["analysis"]["metrics"] = [tested]
    cluster.start().finish()
    assert cluster.status["stable"]["uri"] == uri(0)
    assert cluster.status["experiment"]["message"].endswith("success rate of a 0.75 vs 1 of stable; maxDrop 0.1")


def test_a_winner_that_is_rolled_back_under_guard_hands_over_to_spec_model() -> None:
    cluster = ExperimentCluster((0.5, 0.9), (40,)).start()
    while not cluster.promotions:
        cluster.run(5)
    cluster.annotations[names.ANNOTATION_ABORT] = cluster.status["stable"]["revision"]
    cluster.run(20)
    assert cluster.status["stable"]["uri"] == uri(0)
    assert cluster.status["blockedRevision"]["uri"] == uri(1)
    assert cluster.weights() == {uri(0): 100}


def test_removing_the_experiment_takes_its_arms_out_and_leaves_stable() -> None:
    cluster = ExperimentCluster((0.5, 0.5, 0.5)).start()
    cluster.run(60)
    for changed in ({}, {"experiment": cluster.experiment | {"alpha": 0.1}}):  # and undone after the next look
        cluster.spec.pop("experiment")
        cluster.spec |= changed
        cluster.reconcile()
        assert "withdrawn with its spec" in cluster.status["verdict"]
        cluster.spec["experiment"] = cluster.experiment
        cluster.run(60)
        assert cluster.status["experiment"]["phase"] == "Running"
    del cluster.spec["experiment"]
    cluster.run(30)
    assert cluster.weights() == {uri(0): 100}
    assert len(cluster.deployments) == 1
    assert "experiment" not in cluster.status
    assert cluster.status["phase"] == "Healthy"


def test_a_winner_waits_for_a_person_and_keeps_its_share() -> None:
    cluster = ExperimentCluster((0.5, 0.9, 0.3), onWinner="wait").start()
    cluster.run(20)
    cluster.annotations[names.ANNOTATION_PROMOTE] = cluster.arm("a")["revision"]
    cluster.run(5)
    assert cluster.status["decisions"][-1]["outcome"] == "refused", "it has not won yet"
    while cluster.status.get("experiment", {}).get("phase") != "Won":
        cluster.run(25)
    cluster.run(60)
    assert (cluster.status["phase"], cluster.weights()) == ("Paused", {uri(0): 75, uri(1): 25})
    assert cluster.events.count("ExperimentWon") == 1, "a person who follows the events has to know that it waits"
    revision = cluster.arm("a")["revision"]
    assert "waiting for `kubectl learnloop promote md`" in cluster.status["verdict"]
    cluster.annotations[names.ANNOTATION_PROMOTE] = "ffffffff"
    cluster.run(30)
    assert cluster.status["stable"]["uri"] == uri(0), "another revision was named"
    cluster.annotations[names.ANNOTATION_PROMOTE] = f"{revision} by mia@example.com"
    cluster.finish()
    assert "mia@example.com" in cluster.status["experiment"]["message"]
    assert cluster.status["stable"]["uri"] == uri(1)


def test_an_arm_wins_over_stable_by_way_of_the_arm_that_beat_stable() -> None:
    cluster = ExperimentCluster((0.5, 0.5, 0.5), onWinner="wait").start()
    cluster.run(120)
    stable, a, b = cluster.status["experiment"]["arms"]
    stable["standing"] = a["standing"] = "beaten"
    a["logBetter"], b["logBetter"] = [9.0, 0.0, 0.0], [0.0, 9.0, 0.0]
    cluster.run(5)
    assert (cluster.status["experiment"]["phase"], cluster.status["experiment"]["winner"]) == ("Won", "b")


def test_without_a_winner_by_max_episodes_stable_stays_and_the_verdict_says_so() -> None:
    cluster = ExperimentCluster((0.5, 0.5, 0.5), maxEpisodes=2_000).start()
    while cluster.status.get("experiment", {}).get("phase") != "Finished":
        cluster.run(25)
    message = cluster.status["experiment"]["message"]
    assert message.startswith("experiment over after 2000 episodes without a winner: return: ")
    assert message.endswith("stable keeps serving")
    assert "winner" not in cluster.status["experiment"]
    cluster.run(20)
    assert (cluster.weights(), len(cluster.deployments)) == ({uri(0): 100}, 1)


def test_without_traffic_an_experiment_ends_by_its_time() -> None:
    cluster = ExperimentCluster((0.5, 0.9), (40,), maxSeconds=300).start()
    cluster.traffic = False
    cluster.run(400)
    assert cluster.status["experiment"]["message"].startswith("experiment over after 300 s without a winner")


def test_a_gross_breach_withdraws_one_arm_and_the_others_go_on() -> None:
    cluster = ExperimentCluster((0.5, 0.55, 0.62)).start()
    cluster.run(40)
    cluster.errors[uri(1)] = 0.5
    cluster.run(10)
    assert cluster.arm("a")["standing"] == "withdrawn"
    assert "error rate of a 0.5" in cluster.arm("a")["message"]
    assert cluster.weights() == {uri(0): 75, uri(2): 25}
    cluster.finish()
    assert cluster.status["stable"]["uri"] == uri(2)


def test_stable_wins_when_every_challenger_is_worse() -> None:
    cluster = ExperimentCluster((0.9, 0.4, 0.5)).start()
    cluster.finish()
    assert cluster.status["stable"]["uri"] == uri(0)
    assert cluster.status["experiment"]["message"].startswith("experiment over, stable keeps serving")
    assert [cluster.arm(name)["standing"] for name in ("stable", "a", "b")] == ["playing", "beaten", "beaten"]


def test_an_arm_without_pods_gets_nothing_and_is_out_at_its_deadline() -> None:
    cluster = ExperimentCluster((0.5, 0.5, 0.5)).start()
    cluster.run(30)
    cluster.broken.add(cluster.arm("a")["revision"])
    cluster.run(15)
    assert cluster.weights() == {uri(0): 75, uri(1): 0, uri(2): 25}
    cluster.run(80)
    assert cluster.arm("a")["standing"] == "withdrawn"
    assert "not ready within 60 s" in cluster.arm("a")["message"]
    assert cluster.status["experiment"]["phase"] == "Running"


def test_an_arm_that_never_starts_does_not_stop_the_others() -> None:
    cluster = ExperimentCluster((0.5, 0.9, 0.5)).start()
    cluster.reconcile()
    cluster.broken.add(cluster.arm("b")["revision"])
    cluster.finish()
    assert cluster.status["stable"]["uri"] == uri(1)


def test_an_arm_with_stables_own_model_is_named_with_the_fix() -> None:
    cluster = ExperimentCluster(
        (0.5,), (40,), arms=[{"name": "a", "uri": uri(0), "sha256": digest(0), "weight": 40}]
    ).start()
    cluster.run(10)
    assert cluster.status["verdict"].startswith("spec.experiment.arms[0]: a is the model that stable serves")


def test_a_rollout_waits_for_the_experiment_and_begins_after_it() -> None:
    cluster = ExperimentCluster((0.5, 0.5), (40,), maxEpisodes=1_000).start()
    cluster.run(30)
    cluster.wish(5, 0.9)
    cluster.run(10)
    assert cluster.weights() == {uri(0): 60, uri(1): 40}
    while "CanaryCreated" not in cluster.events:
        cluster.run(10)
    assert cluster.status["experiment"]["phase"] == "Finished"
    assert cluster.status["canary"]["uri"] == uri(5)


def test_the_dead_mans_switch_sends_every_new_episode_to_stable() -> None:
    cluster = ExperimentCluster((0.5, 0.5), (40,)).start()
    cluster.run(60)
    table = read(cluster.config_map).table
    assert not table.expired(cluster.now)
    assert table.expired(cluster.now + timedelta(minutes=11))


def test_evidence_is_written_some_dozens_of_times_and_not_at_every_look() -> None:
    cluster = ExperimentCluster((0.5, 0.5), (40,)).start()
    cluster.run(30)
    statuses = set()
    for _ in range(80):
        cluster.run(5)
        statuses.add(str(cluster.status))
    assert len(statuses) <= 40, f"{len(statuses)} writes in 80 looks"


@pytest.mark.parametrize("writes", [0, 1, 2, 6])
def test_dying_after_any_write_of_every_other_pass_ends_in_the_same_place(writes: int) -> None:
    cluster = ExperimentCluster((0.5, 0.9, 0.2)).start()
    for number in range(60):
        cluster.reconcile(crash_after=writes if number % 2 else None)
        cluster.tick(3)
    cluster.finish()
    assert cluster.status["stable"]["uri"] == uri(1)
    assert cluster.weights() == {uri(1): 100}


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_guest_taken_out_by_an_operator_that_died_gets_no_share_back_while_nobody_can_tell(mode, suspend):
    cluster = ExperimentCluster((0.5, 0.5, 0.5)).by(mode)
    cluster.start().run(40)
    cluster.errors[uri(1)] = 0.5
    for _ in range(30):
        cluster.reconcile(crash_after=1)
        if cluster.arm("a")["standing"] == "withdrawn":
            break
        cluster.tick(1)
    assert cluster.arm("a")["standing"] == "withdrawn", "it is on record before it loses its share"
    assert cluster.weights() == {uri(0): 50, uri(1): 25, uri(2): 25}, "the operator died before the route"
    cluster.prometheus, cluster.spec["suspend"] = False, suspend
    for _ in range(5):
        cluster.reconcile()
        assert cluster.weights() == {uri(0): 75, uri(2): 25}
        cluster.tick(5)
    assert "error rate of a 0.5" in cluster.arm("a")["message"]


def test_a_quiet_experiment_costs_no_write() -> None:
    cluster = ExperimentCluster((0.5, 0.5), (40,)).start()
    cluster.run(60)
    cluster.traffic = False
    for _ in range(4):
        cluster.reconcile()
    status, config_map = cluster.status, cluster.config_map
    cluster.tick(1)
    plan = decide(cluster.snapshot())
    assert (plan.status, plan.apply[0], plan.events, plan.delete) == (status, config_map, (), ())


def play(source: np.random.Generator, chances: list[float], alpha: float, looks: int) -> set[int]:
    """The arms still in the race after `looks` at 40 new episodes each."""
    size = len(chances)
    tallies, racing = several_arms.fresh(size), frozenset(range(size))
    n, total = np.zeros(size), np.zeros(size)
    for _ in range(looks):
        tallies = several_arms.look(
            tallies,
            tuple(
                Counts(a, b) if i in racing or not i else None for i, (a, b) in enumerate(zip(n, total, strict=True))
            ),
        )
        racing -= set(several_arms.beaten_by(tallies, racing, several_arms.bar(size, alpha), 40))
        if len(racing) <= 1:
            break
        new = source.multinomial(40, np.full(size, 1 / size))
        n, total = n + new, total + source.binomial(new, chances)
    return set(racing)


def test_identical_arms_have_a_false_winner_no_more_often_than_alpha() -> None:
    source = np.random.default_rng(5)
    runs = [play(source, [0.7] * 4, 0.2, 40) for _ in range(100)]
    false = sum(len(left) == 1 for left in runs) / len(runs)
    assert false <= 0.2, f"{false:.1%} false winners at alpha 0.2"


def test_the_best_arm_wins_a_clear_race() -> None:
    source = np.random.default_rng(6)
    runs = [play(source, [0.5, 0.5, 0.8], 0.05, 100) for _ in range(40)]
    assert sum(left == {2} for left in runs) >= 38
    assert all(2 in left for left in runs)


def test_impossible_counters_and_those_that_fall_change_no_evidence() -> None:
    tallies = several_arms.look(several_arms.fresh(2), (Counts(0, 0), Counts(0, 0)))
    tallies = several_arms.look(tallies, (Counts(50, 25), Counts(50, 45)))
    fell = Counts(3, 1), Counts(70, 60)
    for counts in ((Counts(60, math.nan), Counts(60, 50)), (Counts(60, 70), Counts(60, 50)), fell):
        assert several_arms.look(tallies, counts) == tallies


def test_in_gateway_mode_the_route_splits_among_all_arms_and_leads_each_episode_back_to_its_own() -> None:
    cluster = ExperimentCluster((0.5, 0.5, 0.5), (30, 20)).by("gateway")
    cluster.start().run(30)
    *by_header, by_weight = cluster.route["spec"]["rules"]
    assert [item["weight"] for item in by_weight["backendRefs"]] == [50, 30, 20]
    named = {rule["matches"][0]["headers"][0]["value"]: rule["backendRefs"][0]["name"] for rule in by_header}
    assert named == {arm["revision"]: f"md-{arm['revision']}" for arm in cluster.status["experiment"]["arms"]}


def test_arms_of_an_experiment_share_what_stable_leaves() -> None:
    arms = arms_of(30, 30, 35)
    assert sum(arm["weight"] for arm in arms) == 95
    cluster = ExperimentCluster((0.5, 0.5, 0.5, 0.5), (30, 30, 35)).start()
    cluster.run(20)
    assert cluster.weights()[uri(0)] == 5
