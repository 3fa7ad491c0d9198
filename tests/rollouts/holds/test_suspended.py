"""spec.suspend in the middle of a rollout: the way up is closed, the way down is not."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from learnloop_api import names
from learnloop_operator.rollout.decide_deployment import decide
from testing.simulation.experiment_cluster import ExperimentCluster
from testing.simulation.fast_lane_cluster import LanedCluster
from testing.simulation.rollout_cluster import BAD, BETTER, CHECKS, GOOD, Cluster, uri
from testing.simulation.two_arm_rig import SUCCESS, Rig


def at_weight(cluster: Cluster, weight: int, quality: float = BETTER) -> Cluster:
    cluster.run(10)
    cluster.rise(1, quality, weight)
    cluster.spec["suspend"] = True
    return cluster


def test_no_step_goes_up_and_the_way_goes_on_afterwards() -> None:
    cluster = at_weight(Cluster(), 10)
    cluster.run(60)
    assert (cluster.weight(uri(1)), cluster.status["phase"]) == (10, "Suspended")
    assert cluster.status["verdict"].startswith("suspended at 10 %: no step goes up; the checks go on")
    cluster.spec["suspend"] = False
    cluster.run(120)
    assert cluster.promotions


def test_a_canary_that_turns_bad_is_rolled_back() -> None:
    cluster = at_weight(Cluster(), 25, GOOD)
    cluster.quality[uri(1)] = BAD
    cluster.run(120)
    assert cluster.weight(uri(1)) == 0
    assert cluster.status["blockedRevision"]["reason"] == "CheckFailed"
    cluster.run(10)
    assert cluster.status["phase"] == "Suspended"
    assert cluster.status["verdict"].startswith("suspended; RolledBack at 25 %: ")


def test_a_sequential_test_goes_on() -> None:
    rig = Rig(1, 0.7, SUCCESS)
    while not rig.status.get("weight"):
        rig.run(1)
    rig.spec["suspend"] = True
    assert rig.run(400) == "RolledBack"
    assert "P(worse)" in rig.status["blockedRevision"]["message"]


@pytest.mark.parametrize("verb", [names.ANNOTATION_ABORT, names.verb_annotation("reject")])
def test_abort_and_reject_are_obeyed_at_once(verb: str) -> None:
    cluster = Cluster([{"weight": 10, "minEpisodes": 6, "pause": True}, {"weight": 100}])
    at_weight(cluster, 10)
    cluster.annotations[verb] = cluster.status["canary"]["revision"]
    cluster.run(1)
    assert cluster.weight(uri(1)) == 0
    assert cluster.status["blockedRevision"]["reason"] == ("Aborted" if verb == names.ANNOTATION_ABORT else "Rejected")


@pytest.mark.parametrize("verb", ["pause", "restart", "promote", "skip"])
def test_other_orders_wait_and_are_obeyed_afterwards(verb: str) -> None:
    cluster = at_weight(Cluster(), 10)
    cluster.annotations[names.verb_annotation(verb)] = cluster.status["canary"]["revision"]
    cluster.run(20)
    assert (cluster.weight(uri(1)), cluster.status.get("decisions")) == (10, None)
    cluster.spec["suspend"] = False
    decided = decide(cluster.snapshot()).status["decisions"]
    assert [(item["verb"], item["outcome"]) for item in decided] == [(verb, "obeyed")]


def test_orders_are_obeyed_while_only_the_agent_is_suspended() -> None:
    """An agent that is suspended trains and plays nothing more; its ModelDeployment goes on."""
    cluster = Cluster()
    cluster.run(10)
    cluster.rise(1, BETTER, 10)
    idle = replace(cluster.snapshot(), desired=replace(cluster.snapshot().desired, suspended_agent="cartpole"))
    annotation = {**cluster.annotations, names.verb_annotation("promote"): cluster.status["canary"]["revision"]}
    body = {**idle.object, "metadata": {**idle.object["metadata"], "annotations": annotation}}
    [decision] = decide(replace(idle, object=body)).status["decisions"]
    assert (decision["verb"], decision["outcome"]) == ("promote", "obeyed")


def test_no_rate_is_shown_while_the_agent_that_plays_is_suspended() -> None:
    cluster = Cluster([{"weight": 10, "minEpisodes": 1_000}, {"weight": 100}])
    cluster.run(10)
    cluster.rise(1, BETTER, 10)
    cluster.run(30)
    assert "at the present rate" in cluster.status["verdict"]
    snapshot = cluster.snapshot()
    idle = replace(snapshot, desired=replace(snapshot.desired, suspended_agent="cartpole"))
    verdict = decide(idle).status["verdict"]
    assert "rate" not in verdict
    assert verdict.endswith("more needed; LearningAgent cartpole is suspended, its actors play no episodes")


def test_a_canary_without_pods_gets_nothing_and_is_not_let_in_again() -> None:
    cluster = at_weight(Cluster(), 25)
    cluster.broken.add(cluster.status["canary"]["revision"])
    cluster.run(5)
    assert cluster.weight(uri(1)) == 0
    cluster.broken.clear()
    cluster.run(60)
    assert (cluster.weight(uri(1)), cluster.status["phase"]) == (0, "Suspended")


def test_a_promoted_arm_that_turns_bad_is_swapped_back_and_its_guard_does_not_end() -> None:
    cluster = Cluster(keep=60)
    cluster.spec["analysis"]["metrics"] = [{**CHECKS[0], "min": 200}]
    at_weight(cluster, 100)
    cluster.spec["suspend"] = False
    while not cluster.promotions:
        cluster.run(1)
    cluster.spec["suspend"] = True
    cluster.run(80)
    assert "previous" in cluster.status, "the old arm went while suspended"
    cluster.quality[uri(1)] = BAD
    cluster.run(240)
    assert cluster.status["stable"]["uri"] == uri(0)


def test_an_experiment_promotes_nobody_and_loses_an_arm_that_breaks_a_bar() -> None:
    cluster = ExperimentCluster((0.5, 0.9), (40,)).start()
    cluster.run(20)
    assert cluster.weights()[uri(1)] == 40
    cluster.spec["suspend"] = True
    cluster.run(200)
    assert (cluster.weights()[uri(1)], cluster.promotions) == (40, [])
    cluster.spec["analysis"]["metrics"] = [{"name": "errors", "type": "errors", "max": 0.1}]
    cluster.errors[uri(1)] = 0.8
    cluster.run(60)
    assert cluster.weights() == {uri(0): 100}


def test_the_fast_lane_reads_on() -> None:
    cluster = LanedCluster()
    cluster.spec["analysis"]["metrics"] = [{**CHECKS[0], "minRatio": 0.01}]
    at_weight(cluster, 10)
    cluster.fail(uri(1))
    cluster.run(60)
    assert cluster.weight(uri(1)) == 0
    assert cluster.status["blockedRevision"]["reason"] == "GrossBreach"


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12), st.sampled_from([BAD, GOOD, BETTER])), max_size=6))
@settings(max_examples=max(10, settings().max_examples // 6))
def test_no_arm_gets_more_while_suspended(fates: list[tuple[bool, int, float]]) -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    for suspended, seconds, quality in fates:
        cluster.spec["suspend"], cluster.quality[uri(1)] = suspended, quality
        for _ in range(seconds):
            before, promoted = cluster.weight(uri(1)), len(cluster.promotions)
            cluster.run(1)
            if suspended:
                assert cluster.weight(uri(1)) <= before
                assert len(cluster.promotions) == promoted
