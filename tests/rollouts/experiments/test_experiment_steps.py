"""Experiments as steps of whole simulated rollouts: who is proven best goes on, and nobody else does."""

import pytest

from learnloop_api import names
from testing.simulation.experiment_step_cluster import StepCluster
from testing.simulation.rollout_cluster import digest, uri


def test_a_canary_that_is_proven_better_than_stable_goes_on_and_is_promoted() -> None:
    cluster = StepCluster((0.5, 0.8)).start()
    cluster.until("Running")
    assert cluster.status["stepText"] == "2/4 experiment"
    cluster.run(5)
    assert cluster.weights() == {uri(0): 70, uri(1): 30}
    cluster.end()
    assert cluster.status["stable"]["uri"] == uri(1)
    assert (cluster.found["winner"], cluster.found["step"]) == ("canary", 1)
    assert "ExperimentWon" in cluster.events
    assert cluster.promotions == [cluster.status["stable"]["revision"]]


def test_a_canary_that_stable_beats_is_rolled_back_with_the_figures() -> None:
    cluster = StepCluster((0.8, 0.65)).start()
    cluster.end()
    assert (cluster.status["phase"], cluster.status["stable"]["uri"]) == ("RolledBack", uri(0))
    blocked = cluster.status["blockedRevision"]
    assert blocked["reason"] == "ExperimentLost"
    assert "the experiment is over: canary beaten by stable" in blocked["message"]
    assert cluster.weights() == {uri(0): 100}


def test_a_guest_that_wins_takes_the_canarys_place_passes_the_other_steps_and_stays() -> None:
    cluster = StepCluster((0.5, 0.5, 0.9), (20,)).start()
    cluster.until("Running")
    cluster.run(5)
    assert cluster.weights() == {uri(0): 50, uri(1): 30, uri(5): 20}
    templates = {name: item["spec"]["template"] for name, item in cluster.deployments.items()}
    while cluster.status["canary"]["uri"] == uri(1):
        cluster.run(5)
    assert cluster.status["canary"]["uri"] == uri(5)
    assert cluster.status["step"] == 2
    cluster.end()
    cluster.run(120)
    assert (cluster.status["phase"], cluster.status["stable"]["uri"]) == ("Healthy", uri(5))
    assert cluster.weights() == {uri(5): 100}
    assert cluster.events.count("CanaryCreated") == 1, "the model in spec.model tried again"
    (name,) = cluster.deployments
    assert cluster.deployments[name]["spec"]["template"] == templates[name], "the winner's pods restarted"


def test_without_a_winner_the_canary_is_rolled_back_and_a_retry_tries_it_again() -> None:
    cluster = StepCluster((0.6, 0.6), maxEpisodes=1_500).start()
    cluster.end()
    assert cluster.status["blockedRevision"]["reason"] == "NoWinner"
    assert "experiment over after 1500 episodes without a winner" in cluster.status["verdict"]
    cluster.quality[uri(1)] = 0.9
    cluster.annotations[names.ANNOTATION_RETRY] = cluster.status["blockedRevision"]["revision"]
    cluster.run(5)
    cluster.end()
    assert cluster.status["stable"]["uri"] == uri(1)


def test_a_pause_leaves_the_choice_to_a_person_where_nobody_wins() -> None:
    cluster = StepCluster((0.6, 0.6, 0.6), (20,), pause=True, maxEpisodes=1_500).start()
    while cluster.status["phase"] != "Paused":
        cluster.run(5)
    guest, canary = cluster.arm("a")["revision"], cluster.arm("canary")["revision"]
    asked = f"kubectl learnloop approve md --arm ARM`, with one of canary ({canary}), a ({guest})"
    assert asked in cluster.status["verdict"]
    cluster.run(60)
    assert cluster.status["phase"] == "Paused"
    cluster.annotations[names.ANNOTATION_APPROVE] = f"{guest}/2 by mia@example.com"
    cluster.run(5)
    assert cluster.status["canary"]["uri"] == uri(5)
    assert cluster.status["decisions"][-1]["by"] == "mia@example.com"
    cluster.end()
    assert cluster.status["stable"]["uri"] == uri(5)


def test_a_winner_waits_for_approval_where_the_step_pauses_and_a_rejection_blocks_the_canary() -> None:
    cluster = StepCluster((0.5, 0.5, 0.9), (20,), pause=True).start()
    cluster.until("Won")
    cluster.run(30)
    assert cluster.status["phase"] == "Paused"
    assert "waiting for `kubectl learnloop approve md --arm a`" in cluster.status["verdict"]
    canary = cluster.status["canary"]["revision"]
    cluster.annotations[names.ANNOTATION_REJECT] = f"{canary}/2 by mia@example.com"
    cluster.end()
    assert cluster.status["blockedRevision"]["revision"] == canary
    assert cluster.weights() == {uri(0): 100}
    assert "winner" not in cluster.found
    cluster.run(120)
    assert cluster.status["phase"] == "RolledBack"


def test_a_guest_that_breaks_a_bar_or_loses_its_pods_leaves_and_the_canary_goes_on() -> None:
    cluster = StepCluster((0.5, 0.6, 0.9, 0.5), (20, 20)).start()
    cluster.until("Running")
    cluster.run(20)
    cluster.errors[uri(5)] = 0.5
    cluster.broken.add(cluster.arm("b")["revision"])
    cluster.run(10)
    assert cluster.arm("a")["standing"] == "withdrawn"
    assert cluster.weights() == {uri(0): 70, uri(1): 30, uri(6): 0}
    cluster.run(70)
    assert "not ready within 60 s" in cluster.arm("b")["message"]
    cluster.quality[uri(1)] = 0.95
    cluster.end()
    assert cluster.status["stable"]["uri"] == uri(1)


def test_a_canary_that_loses_to_a_guest_gets_no_more_episodes_while_the_others_go_on() -> None:
    cluster = StepCluster((0.6, 0.5, 0.75), (30,), maxEpisodes=60_000).start()
    cluster.until("Running")
    while cluster.found.get("phase") == "Running" and cluster.arm("canary")["standing"] == "playing":
        cluster.run(5)
    if cluster.found.get("phase") == "Running":
        cluster.run(5)
        assert uri(1) not in {model for model, weight in cluster.weights().items() if weight}
    cluster.end(12_000)
    assert cluster.status["stable"]["uri"] == uri(5)


def test_a_gross_breach_of_the_canary_ends_rollout_and_experiment_in_one_write() -> None:
    cluster = StepCluster((0.5, 0.6, 0.6), (20,)).start()
    cluster.until("Running")
    cluster.run(20)
    cluster.errors[uri(1)] = 0.5
    cluster.run(5)
    assert cluster.status["blockedRevision"]["uri"] == uri(1)
    assert cluster.weights() == {uri(0): 100}
    assert (cluster.found["phase"], "winner" in cluster.found) == ("Finished", False)
    cluster.run(60)
    assert len(cluster.deployments) == 1, "arms were left"


def test_a_winner_that_is_rolled_back_later_stays_blocked_and_the_loser_does_not_try_again() -> None:
    cluster = StepCluster((0.5, 0.5, 0.9), (20,)).start()
    cluster.until("Finished")
    cluster.annotations[names.ANNOTATION_ABORT] = cluster.status["canary"]["revision"]
    cluster.run(200)
    assert cluster.status["blockedRevision"]["uri"] == uri(5)
    assert (cluster.status["phase"], cluster.weights()) == ("RolledBack", {uri(0): 100})
    assert cluster.events.count("CanaryCreated") == 1
    cluster.annotations[names.ANNOTATION_RETRY] = cluster.status["blockedRevision"]["revision"]
    cluster.end()
    assert cluster.status["stable"]["uri"] == uri(5)
    assert [arm["name"] for arm in cluster.found["arms"]] == ["stable", "canary"], "the guest is the canary now"


def test_a_changed_experiment_is_another_one_and_a_new_model_ends_it() -> None:
    cluster = StepCluster((0.5, 0.5, 0.5), (20,)).start()
    cluster.until("Running")
    first = cluster.found["id"]
    cluster.experiment["alpha"] = 0.01
    cluster.run(30)
    assert (cluster.found["id"] != first, cluster.found["phase"]) == (True, "Running")
    cluster.quality[uri(2)] = 0.9
    cluster.spec["model"] = {"uri": uri(2), "sha256": digest(2)}
    cluster.run(5)
    assert cluster.found["phase"] == "Finished"
    cluster.end()
    assert cluster.status["stable"]["uri"] == uri(2)


def test_no_episode_is_split_before_every_arm_has_pods_and_prometheus_answers() -> None:
    cluster = StepCluster((0.5, 0.8, 0.5), (20,)).start()
    while cluster.found.get("phase") != "Starting":
        cluster.tick(1)
        cluster.reconcile()
    cluster.broken.add(cluster.arm("a")["revision"])
    cluster.run(30)
    assert cluster.weights() == {uri(0): 90, uri(1): 10}
    assert "waiting for the pods of a" in cluster.status["verdict"]
    cluster.prometheus = False
    cluster.broken.clear()
    cluster.run(30)
    assert cluster.weights() == {uri(0): 90, uri(1): 10}
    assert "no evidence" in cluster.status["verdict"]
    cluster.prometheus = True
    cluster.end()
    assert cluster.status["stable"]["uri"] == uri(1)


@pytest.mark.parametrize("writes", [1, 2])
def test_dying_after_any_write_of_every_other_pass_ends_in_the_same_place(writes: int) -> None:
    cluster = StepCluster((0.5, 0.4, 0.95), (25,)).start()
    for number in range(80):
        cluster.reconcile(crash_after=writes if number % 2 else None)
        cluster.tick(3)
    cluster.end()
    assert cluster.status["stable"]["uri"] == uri(5)
    assert cluster.weights() == {uri(5): 100}


def test_a_winner_inherits_no_evidence_of_the_canary_that_it_replaces() -> None:
    cluster = StepCluster((0.5, 0.5, 0.9), (20,)).start()
    cluster.spec["analysis"]["metrics"].append({"name": "success", "type": "success", "minRatio": 0.9})
    cluster.success = {uri(0): 0.9, uri(1): 0.9, uri(5): 0.75}
    while (cluster.status.get("canary") or {}).get("uri") != uri(5):
        cluster.run(5)
    inherited = [item["compared"][0] for item in cluster.status.get("evidence", ()) if item.get("compared")]
    assert not any(inherited), "the guest has compared nothing yet"
    cluster.end()
    assert cluster.status["blockedRevision"]["uri"] == uri(5)
    assert cluster.weights() == {uri(0): 100}


def test_a_winner_before_the_last_step_is_compared_at_the_weight_of_its_experiment() -> None:
    for success, phase, serving in ((0.95, "Healthy", uri(5)), (0.6, "RolledBack", uri(0))):
        cluster = StepCluster((0.5, 0.5, 0.9), (20,))
        del cluster.spec["rollout"]["steps"][2]
        cluster.start()
        cluster.spec["analysis"]["metrics"].append({"name": "success", "type": "success", "minRatio": 0.9})
        cluster.success = {uri(0): 0.9, uri(1): 0.9, uri(5): success}
        cluster.end()
        assert (cluster.status["phase"], cluster.weights()) == (phase, {serving: 100})
