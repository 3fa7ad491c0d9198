"""Whole rollouts through gates: no user meets a candidate that has not passed, whatever its suites do."""

import random

import pytest
from hypothesis import given, strategies as st

from learnloop_api.names import ANNOTATION_APPROVE, ANNOTATION_PROMOTE, ANNOTATION_REJECT, ANNOTATION_SKIP
from testing.simulation.gated_cluster import GatedCluster
from testing.simulation.rollout_cluster import BETTER, digest, uri

TWO = {
    "suites": [
        {"name": "refusal", "builtin": "refusal", "samples": 300},
        {"name": "leak", "builtin": "leak", "samples": 300, "maxRate": 0.02, "timeout": "60s"},
    ]
}
APPROVED = {**TWO, "approval": {"by": ["safety"], "within": "2m"}}


def served(gates: dict[str, object] | None = None) -> GatedCluster:
    """With model 0 as stable, that came before there were gates."""
    cluster = GatedCluster()
    del cluster.spec["gates"]
    cluster.run(4)
    cluster.spec["gates"] = gates or TWO
    return cluster


def test_a_candidate_that_passes_all_suites_is_rolled_out_and_the_verdicts_are_kept() -> None:
    cluster = served()
    cluster.wish(1, BETTER)
    cluster.run(5)
    assert cluster.status["phase"] == "Progressing"
    assert cluster.status["weight"] == 0
    assert cluster.status["gates"]["phase"] == "Running"
    assert cluster.settle() == "Healthy"
    assert cluster.status["stable"]["uri"] == uri(1)
    gates = cluster.status["gates"]
    assert gates["phase"] == "Passed"
    assert [item["verdict"] for item in gates["suites"]] == ["passed", "passed"]
    assert gates["suites"][0]["report"] == "e" * 64
    assert cluster.events.count("GatePassed") == 2
    (call,) = cluster.calls
    assert call.path == f"/api/v1/models/md/gates/{gates['revision']}/verdict"
    assert call.body["passed"]


@pytest.mark.parametrize("end", [60, 20, "crash", "hang", "silent"])
def test_a_candidate_whose_suite_fails_in_any_way_is_rolled_back_before_its_first_episode(end: int | str) -> None:
    cluster = served()
    cluster.ends["leak"] = end
    cluster.wish(1, BETTER)
    assert cluster.settle() == "RolledBack"
    assert cluster.status["stable"]["uri"] == uri(0)
    assert cluster.status["blockedRevision"]["reason"] == "GateFailed"
    assert "before its first episode" in cluster.status["blockedRevision"]["message"]
    assert "leak not passed" in cluster.status["verdict"] or "leak 60 of 300" in cluster.status["verdict"] or end == 20
    revision = cluster.status["blockedRevision"]["revision"]
    assert not [item for item in cluster.episodes if item[1] == revision]
    assert not [job for job in cluster.jobs.values() if job["status"].get("active")] or end == "hang"
    assert not cluster.calls[-1].body["passed"]


def test_a_candidate_whose_data_plane_is_gone_waits_and_is_judged_when_it_is_back() -> None:
    cluster = served()
    cluster.data_plane = False
    cluster.wish(1, BETTER)
    cluster.run(200)
    assert cluster.status["weight"] == 0
    assert "the data plane does not answer" in cluster.status["verdict"]
    cluster.data_plane = True
    assert cluster.settle() == "Healthy"
    assert cluster.status["stable"]["uri"] == uri(1)


def test_a_person_who_may_lets_a_candidate_begin_and_nobody_else() -> None:
    cluster = served(APPROVED)
    cluster.wish(1, BETTER)
    cluster.run(3)
    revision = cluster.status["canary"]["revision"]
    cluster.annotations[ANNOTATION_APPROVE] = f"{revision} at 1 by safety"
    cluster.run(3)
    assert cluster.status["decisions"][-1]["outcome"] == "refused"
    assert "not all passed" in cluster.status["decisions"][-1]["message"]
    cluster.run(10)
    assert cluster.status["phase"] == "Paused"
    assert cluster.status["gates"]["phase"] == "AwaitingApproval"
    cluster.annotations[ANNOTATION_APPROVE] = f"{revision} at 2 by mallory"
    cluster.run(3)
    assert "only safety may approve" in cluster.status["decisions"][-1]["message"]
    assert cluster.status["weight"] == 0
    cluster.annotations[ANNOTATION_APPROVE] = f"{revision} at 3 by safety"
    cluster.run(3)
    assert cluster.status["weight"] == 10
    assert cluster.status["gates"]["approvedBy"] == "safety (as claimed)"


def test_a_candidate_that_nobody_approves_in_time_is_rolled_back() -> None:
    cluster = served(APPROVED)
    cluster.wish(1, BETTER)
    cluster.run(150)
    assert cluster.status["phase"] == "RolledBack"
    assert "none of safety approved within 2m" in cluster.status["verdict"]


def test_a_person_takes_a_candidate_back_at_its_gates() -> None:
    cluster = served(APPROVED)
    cluster.wish(1, BETTER)
    cluster.run(15)
    cluster.annotations[ANNOTATION_REJECT] = f"{cluster.status['canary']['revision']} at 1 by safety"
    cluster.run(3)
    assert cluster.status["blockedRevision"]["reason"] == "Rejected"


@pytest.mark.parametrize("verb", [ANNOTATION_PROMOTE, ANNOTATION_SKIP])
def test_nobody_leads_users_past_the_gates(verb: str) -> None:
    cluster = served()
    cluster.ends["leak"] = "hang"
    cluster.wish(1, BETTER)
    cluster.run(4)
    cluster.annotations[verb] = f"{cluster.status['canary']['revision']} at 1 by boss"
    cluster.run(3)
    assert cluster.status["decisions"][-1]["outcome"] == "refused"
    assert "gates are not passed" in cluster.status["decisions"][-1]["message"]
    assert cluster.status["weight"] == 0


def test_a_suite_that_changes_runs_again_and_the_old_job_goes() -> None:
    cluster = served()
    cluster.ends["leak"] = "hang"
    cluster.wish(1, BETTER)
    cluster.run(10)
    for job in cluster.jobs.values():
        job["status"].pop("active", 0)  # it is in a queue, or lost its pod
    cluster.ends["leak"] = 0
    cluster.spec["gates"] = {"suites": [TWO["suites"][0], {**TWO["suites"][1], "maxRate": 0.03}]}
    cluster.run(3)
    assert sum("conditions" not in job["status"] for job in cluster.jobs.values()) == 1
    assert (cluster.settle(), cluster.status["stable"]["uri"]) == ("Healthy", uri(1))


def test_a_model_that_is_tried_again_is_judged_anew() -> None:
    cluster = served()
    cluster.ends["leak"] = 60
    cluster.wish(1, BETTER)
    assert cluster.settle() == "RolledBack"
    first = set(cluster.jobs)
    cluster.ends["leak"] = 0
    cluster.annotations["learnloop.dev/retry"] = f"{cluster.status['blockedRevision']['revision']} at 1 by me"
    assert cluster.settle() == "Healthy"
    assert len(set(cluster.jobs) - first) == 2
    assert cluster.status["stable"]["uri"] == uri(1)


def test_a_candidate_that_is_superseded_at_its_gates_leaves_no_running_suite() -> None:
    cluster = served()
    cluster.ends = {"leak": "hang", "refusal": "hang"}
    cluster.wish(1, BETTER)
    cluster.run(8)
    old = set(cluster.jobs)
    cluster.ends = {}
    cluster.wish(2, BETTER)
    cluster.run(3)
    assert not old & set(cluster.jobs)
    assert cluster.settle() == "Healthy"
    assert cluster.status["stable"]["sha256"] == digest(2)


def test_a_model_that_served_before_comes_back_without_its_gates() -> None:
    cluster = served()
    cluster.promote(1, BETTER)
    cluster.run(60)
    cluster.ends = {"leak": "crash"}
    jobs = len(cluster.jobs)
    cluster.annotations["learnloop.dev/undo"] = f"{cluster.status['stable']['revision']} at 1 by me"
    cluster.run(30)
    assert cluster.status["stable"]["uri"] == uri(0)
    assert len(cluster.jobs) == jobs


def fresh(ends: dict[str, int | str] | None = None) -> GatedCluster:
    """With gates from the beginning: the first model has to pass them, too."""
    cluster = GatedCluster(TWO)
    cluster.strict, cluster.ends = True, ends or {}
    return cluster


def test_the_first_model_serves_nobody_before_it_has_passed_its_gates() -> None:
    cluster = fresh()
    cluster.run(4)
    assert cluster.status["gates"]["phase"] == "Running"
    assert "stable" not in cluster.status
    table = cluster.routing().table
    assert table is not None
    assert [(arm.role, arm.weight) for arm in table.arms] == [("canary", 0)]
    cluster.run(12)
    assert cluster.status["stable"]["uri"] == uri(0)
    assert cluster.status["gates"]["phase"] == "Passed"
    cluster.promote(1, BETTER)
    assert cluster.status["stable"]["uri"] == uri(1)


@pytest.mark.parametrize("end", [60, "crash", "silent"])
def test_a_first_model_that_does_not_pass_serves_nobody_and_may_be_tried_again(end: int | str) -> None:
    cluster = fresh({"leak": end})
    cluster.run(60)
    assert cluster.status["phase"] == "RolledBack"
    assert "stable" not in cluster.status
    assert not cluster.deployments
    assert not list(cluster.episodes)
    cluster.ends = {}
    cluster.annotations["learnloop.dev/retry"] = f"{cluster.status['blockedRevision']['revision']} at 1 by me"
    cluster.run(30)
    assert cluster.status["stable"]["uri"] == uri(0)


def test_another_first_model_takes_the_place_of_one_that_did_not_pass() -> None:
    cluster = fresh({"leak": 60})
    cluster.run(30)
    cluster.ends = {}
    cluster.wish(1, BETTER)
    cluster.run(30)
    assert cluster.status["stable"]["uri"] == uri(1)


@given(st.integers(0, 2**32))
def test_whatever_happens_no_user_meets_what_has_not_passed(seed: int) -> None:
    """The simulator's own check holds at every write, with operators that die in between."""
    draw = random.Random(seed)
    cluster = served(draw.choice((TWO, APPROVED)))
    for number in (1, 2):
        cluster.wish(number, draw.choice((BETTER, 9.0)))
        cluster.ends = {name: draw.choice((0, 2, 40, "crash", "hang", "silent")) for name in ("refusal", "leak")}
        for _ in range(30):
            cluster.data_plane = draw.random() < 0.9
            canary = cluster.status.get("canary")
            if canary and draw.random() < 0.1:
                verb = draw.choice(("approve", "pause", "resume", "restart", "abort"))
                cluster.annotations[f"learnloop.dev/{verb}"] = f"{canary['revision']} at {cluster.now} by safety"
            cluster.reconcile(draw.choice((None, None, 0, 1, 2, 3)))
            cluster.tick(1)
