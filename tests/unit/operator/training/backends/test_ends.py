"""Ends as the controllers write them: what each says when its ranks end well, fail, are held back or lose a node."""

import pytest

from learnloop_operator.training.backends import BACKENDS, PYTORCH_JOB
from testing.training.training_builders import DEFAULTS

from .test_every_backend import order

AT = "2026-03-01T12:00:10Z"
BY_NAME = {backend.name: backend for backend in BACKENDS}


def item(type_: str, reason: str, message: str = "") -> dict:
    return {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": AT}


# As the training operator v1.9, Kubernetes 1.35, JobSet v0.12 and Trainer v2.3 write them.
SUCCEEDED = {
    "pytorchjob": [item("Succeeded", "PyTorchJobSucceeded", "PyTorchJob t is successfully completed.")],
    "job": [item("SuccessCriteriaMet", "CompletionsReached"), item("Complete", "CompletionsReached")],
    "trainjob": [item("Complete", "AllJobsCompleted", "jobset completed successfully")],
    "rayjob": [{"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "endTime": AT}],
}
FAILED = {
    "pytorchjob": [item("Failed", "PyTorchJobFailed", "PyTorchJob t is failed because 1 Worker replica(s) failed.")],
    "job": [
        item("FailureTarget", "BackoffLimitExceeded"),
        item("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    ],
    "trainjob": [item("Failed", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")],
    "rayjob": [{"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "message": "exit code 1", "endTime": AT}],
}
DISRUPTED = {
    "job": [item("Failed", "PodFailurePolicy", "Pod ns/t-0-x has condition DisruptionTarget matching FailJob rule")],
    "trainjob": [item("Failed", "FailJobSetFailurePolicyAction", "jobset failed due to FailJobSet failure policy")],
}


def live(name: str, *conditions: dict, suspended: bool = False) -> dict:
    backend = BY_NAME[name]
    manifest = dict(backend.render(order(backend, attempt=2), DEFAULTS))
    manifest["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z"
    place = manifest["spec"].setdefault("runPolicy", {}) if name == "pytorchjob" else manifest["spec"]
    place["suspend"] = suspended
    if name == "rayjob":
        begun = {"jobDeploymentStatus": "Suspended" if suspended else "Running"}
        return {**manifest, "status": begun | (conditions[-1] if "jobStatus" in conditions[-1] else {})}
    return {**manifest, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize("name", BY_NAME)
def test_one_at_work_is_active_and_remembers_its_attempt_and_its_size(name: str) -> None:
    idle = {**item("Suspended", "Resumed"), "status": "False"}
    job = BY_NAME[name].read(live(name, idle))
    assert (job.state, job.attempt, job.queued, job.deleting) == ("active", 2, False, False)
    assert job.workers == (0 if name == "job" else 2)
    assert (job.ref.kind, job.ref.name) == (BY_NAME[name].kind, "t")


@pytest.mark.parametrize("name", BY_NAME)
def test_an_end_is_read_with_its_time_and_its_sentence(name: str) -> None:
    good = BY_NAME[name].read(live(name, *SUCCEEDED[name]))
    bad = BY_NAME[name].read(live(name, *FAILED[name]))
    assert (good.state, bad.state) == ("succeeded", "failed")
    assert good.finished is not None
    assert bad.message == FAILED[name][-1]["message"]
    assert bad.disrupted == "", "a rank that failed by itself has no excuse"


@pytest.mark.parametrize(
    ("status", "state", "message"),
    [
        ({"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}, "failed", ""),
        (
            {"jobDeploymentStatus": "Failed", "reason": "SubmissionFailed", "message": "no answer"},
            "failed",
            "SubmissionFailed: no answer",
        ),
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Running"}, "active", ""),
    ],
)
def test_a_ray_job_ends_by_two_words(status, state, message):
    job = BY_NAME["rayjob"].read({**live("rayjob", {}), "status": status})
    assert (job.state, job.message) == (state, message)


@pytest.mark.parametrize("name", DISRUPTED)
def test_a_node_that_was_taken_away_is_told_by_the_end(name: str) -> None:
    job = BY_NAME[name].read(live(name, *DISRUPTED[name]))
    assert job.state == "failed"
    assert job.disrupted == DISRUPTED[name][-1]["message"]


@pytest.mark.parametrize("name", BY_NAME)
def test_one_that_is_held_back_is_queued_until_it_has_ended(name: str) -> None:
    held = live(name, item("Suspended", "Suspended"), suspended=True)
    assert BY_NAME[name].read(held).queued
    ended = live(name, *FAILED[name], suspended=True)
    assert not BY_NAME[name].read(ended).queued, "an end is an end"


@pytest.mark.parametrize("written", ["-7", "seven", "7777777", "9" * 5000])
def test_an_attempt_that_nobody_can_read_counts_as_the_first(written: str) -> None:
    manifest = live("pytorchjob")
    manifest["metadata"]["annotations"]["learnloop.dev/attempt"] = written
    assert PYTORCH_JOB.read(manifest).attempt == 0
