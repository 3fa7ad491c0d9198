"""A pod that cannot start says why, and so does a controller that cannot make it."""

from datetime import UTC, datetime, timedelta

import pytest

from learnloop_operator.core.pod_trouble import LONGEST, complaint_of, creation_trouble, trouble
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kubernetes_events import failure_of, failure_of_job, with_events
from learnloop_operator.training.backends import CONTAINERS
from learnloop_operator.training.gang_pods import rank_of
from testing.training.training_builders import condition, heartbeat, job, plan, rank, run, situation

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "1 Insufficient nvidia.com/gpu",
}


def pod(age: float = 60, **status) -> dict:
    made = (NOW - timedelta(seconds=age)).isoformat()
    return {"metadata": {"name": "t-master-0", "uid": "p-1", "creationTimestamp": made}, "status": status}


def waiting(reason: str, message: str | None = "back-off", name: str = "pytorch") -> dict:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def ended(code: int, message: str = "", reason: str = "Error") -> dict:
    return {"exitCode": code, "message": message, "reason": reason}


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "taskgroups.py", line 145, in __aexit__
  |     raise me from None
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "rooms.py", line 7, in step
    | KeyError: 'thermometer'
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("the actor stops: KeyError: 'thermometer'\n", "the actor stops: KeyError: 'thermometer'"),
        ('{"episodes": 0}\nno such host\n{"episodes": 0}\n', "no such host"),
        ('{"at": "now", "level": "error", "message": "fast lane: KeyError: 1"}\n', "fast lane: KeyError: 1"),
        ("Traceback (most recent call last):\n  File x\nOSError: gone\nbye\n", "OSError: gone"),
        (GROUP, "KeyError: 'thermometer'"),
        ("\x1b[33mDeprecated\x1b[0m\nValueError: \x1b[1mbad\x1b[0m \x1b]0;title\x07value", "ValueError: bad value"),
        ("42\n", "42"),
    ],
)
def test_the_cause_is_told_and_not_the_line_that_came_last(log: str, cause: str) -> None:
    assert trouble(pod(containerStatuses=[{"state": {"terminated": ended(1, log)}}])) == cause


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({"conditions": [UNSCHEDULABLE]}, "Unschedulable: 1 Insufficient nvidia.com/gpu"),
        ({"containerStatuses": [waiting("ImagePullBackOff")]}, "ImagePullBackOff: back-off"),
        ({"containerStatuses": [waiting("ErrImagePull", None)]}, "ErrImagePull: no message"),
        (
            {
                "containerStatuses": [waiting("PodInitializing")],
                "initContainerStatuses": [waiting("ErrImagePull", "not found", "init-pytorch")],
            },
            "init container init-pytorch: ErrImagePull: not found",
        ),
        (
            {
                "containerStatuses": [waiting("PodInitializing")],
                "initContainerStatuses": [{"name": "init", "state": {"terminated": ended(1, "no such host")}}],
            },
            "no such host",
        ),
        (
            {"containerStatuses": [waiting("CrashLoopBackOff") | {"lastState": {"terminated": ended(1, "no model")}}]},
            "no model",
        ),
        (
            {
                "containerStatuses": [
                    waiting("CrashLoopBackOff") | {"lastState": {"terminated": ended(137, "", "OOMKilled")}}
                ]
            },
            "container pytorch exited with 137 (OOMKilled), and left no message",
        ),
        (
            {"containerStatuses": [waiting("CreateContainerConfigError", 'secret "x" not found')]},
            'secret "x" not found',
        ),
    ],
)
def test_a_pod_that_cannot_start_says_why(status: dict, sentence: str) -> None:
    assert sentence in trouble(pod(**status))
    assert sentence in str(complaint_of(pod(**status)))


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"containerStatuses": [waiting("ContainerCreating", None)]},
        {"containerStatuses": [waiting("PodInitializing", None)], "initContainerStatuses": [{"ready": True}]},
        {"containerStatuses": [{"ready": True, "lastState": {"terminated": ended(1, "long ago")}}]},
        {"containerStatuses": [{"state": {"terminated": ended(0)}}]},
    ],
)
def test_a_pod_on_its_way_or_at_work_has_no_trouble(status: dict) -> None:
    assert trouble(pod(**status)) == ""


PULLING = 'failed to pull and unpack image "r.example.com/a": failed to resolve reference "r.example.com/a": '


@pytest.mark.parametrize(
    ("cause", "advised"),
    [
        ("pull access denied, repository does not exist or may require authorization", True),
        ("failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized", True),
        ("unexpected status from HEAD request: 403 Forbidden", True),
        ("unauthorized: authentication required" + " x" * 300, True),
        ("r.example.com/a: not found", False),
        ("dial tcp: lookup r.example.com: no such host", False),
    ],
)
def test_an_image_that_the_registry_keeps_back_says_where_its_password_goes(cause: str, advised: bool) -> None:
    sentence = trouble(pod(containerStatuses=[waiting("ErrImagePull", PULLING + cause)]))
    assert sentence.startswith("ErrImagePull: " + PULLING)
    assert sentence.endswith("list a Secret of this namespace for its registry in `pod.imagePullSecrets`") == advised
    assert len(sentence) <= LONGEST


def test_a_rank_behind_a_broken_init_container_is_stuck_and_names_it() -> None:
    state = rank_of(
        pod(
            containerStatuses=[waiting("PodInitializing")],
            initContainerStatuses=[waiting("ImagePullBackOff", "not found", "init-pytorch")],
        ),
        CONTAINERS,
        NOW,
    )
    assert state.stuck
    assert state.waiting == "init container init-pytorch: ImagePullBackOff: not found"


def test_a_deployment_says_why_its_pods_cannot_be_made() -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: q"}
    assert creation_trouble({"status": {"conditions": [refused]}}) == "exceeded quota: q"
    assert creation_trouble({"status": {"conditions": [refused | {"status": "False"}]}}) == ""


def test_a_job_whose_pods_may_not_be_made_says_so_and_warns_once() -> None:
    why = 'pods "t-master-0" is forbidden: exceeded quota: q'
    first = plan(situation({"attempts": 1}, job=job(trouble=why)))
    assert condition(first, "Ready")["reason"] == "PodsHeldUp"
    assert condition(first, "Ready")["message"] == f"0 of 3 pods exist: {why}"
    assert [notice.type for notice in first.events] == ["Warning"]
    second = plan(situation(dict(first.status), job=job(trouble=why)))
    assert second.events == ()


def test_a_gang_whose_controller_does_not_run_says_so_after_a_minute() -> None:
    fresh = plan(situation({"attempts": 1}, job=job(age=50, has_status=False)))
    assert condition(fresh, "Ready")["reason"] == "Starting"
    silent = plan(situation({"attempts": 1}, job=job(age=61, has_status=False)))
    assert condition(silent, "Ready")["reason"] == "PodsHeldUp"
    message = "PyTorchJob t has neither a status nor pods: see that the controller of PyTorchJobs runs"
    assert condition(silent, "Ready")["message"] == message
    held = plan(situation({"attempts": 1}, job=job(age=61, has_status=False, queued=True)))
    assert condition(held, "Ready")["reason"] == "Queued", "a queue may hold it back before anybody looks at it"


def test_a_master_that_waits_for_a_worker_without_a_gpu_names_the_gpu_and_waits_for_it() -> None:
    worker = rank(1, 6000, running=False, started=None, waiting="Unschedulable: no GPU", stuck=True)
    beat = heartbeat(phase="starting", message="waiting for 2 of 3 ranks")
    snapshot = situation({"attempts": 1}, job=job(age=6000), ranks=(rank(0, 6000), worker), run=run(beat=beat))
    made = plan(snapshot)
    assert made.status["phase"] == "Starting"
    assert condition(made, "Ready")["message"] == "pod t-worker-0 waits: Unschedulable: no GPU"


def test_a_gang_without_its_image_spends_no_attempt_although_its_workers_give_up_and_are_replaced() -> None:
    master = rank(0, 6000, running=False, started=None, waiting="ErrImagePull: not found", stuck=True)
    snapshot = situation({"attempts": 1}, job=job(age=6000), ranks=(master, rank(1, 10), rank(2, 10)))
    assert condition(plan(snapshot), "Ready")["message"] == "pod t-master-0 waits: ErrImagePull: not found"
    failed = plan(situation({"attempts": 1}, job=job(state="failed"), ranks=(master, rank(1, 10))))
    assert "pod t-master-0 never started: ErrImagePull" in condition(failed, "Ready")["message"]


async def test_the_newest_failure_event_is_the_reason(wire, kube: KubeClient) -> None:
    def event(reason: str, note: str, at: str) -> dict:
        return {"metadata": {}, "reason": reason, "note": note, "deprecatedLastTimestamp": at}

    wire.answer(
        200,
        {
            "items": [
                event("FailedCreatePod", "Error creating: old", "2026-01-01T00:00:01Z"),
                event("FailedCreatePod", "Error creating: exceeded quota", "2026-01-01T00:00:02Z"),
                event("Unschedulable", "something else", "2026-01-01T00:00:03Z"),
            ]
        },
    )
    assert await failure_of(kube, "ns", "u-1") == "exceeded quota"
    assert "regarding.uid%3Du-1" in wire.requests[0][1]


async def test_what_a_job_of_the_same_name_said_before_this_gang_is_not_its_reason(wire, kube: KubeClient) -> None:
    def event(note: str, at: str) -> dict:
        return {"metadata": {}, "reason": "FailedCreate", "note": note, "deprecatedLastTimestamp": at}

    wire.answer(200, {"items": [event("an old Job's", "2026-03-01T11:59:59Z")]})
    wire.answer(200, {"items": [event("Error creating: no room", "2026-03-01T12:00:00Z"), event("none", "")]})
    assert await failure_of_job(kube, "ns", "t-rank-0", NOW) == ""
    assert await failure_of_job(kube, "ns", "t-rank-0", NOW) == "no room"
    assert "regarding.name%3Dt-rank-0" in wire.requests[-1][1]


async def test_events_that_may_not_be_read_stop_nothing(wire, kube: KubeClient) -> None:
    wire.answer(403, {"reason": "Forbidden"})
    assert await failure_of(kube, "ns", "u-1") == ""


async def test_a_pod_that_is_being_made_for_long_is_asked_for_its_events(wire, kube: KubeClient) -> None:
    note = 'MountVolume.SetUp failed for volume "data" : configmap "nobody" not found'
    wire.answer(200, {"items": [{"metadata": {}, "reason": "FailedMount", "note": note}]})
    creating = {"phase": "Pending", "containerStatuses": [waiting("ContainerCreating", None)]}
    (fresh,) = await with_events(kube, "ns", [pod(5, **creating)], NOW)
    assert trouble(fresh) == ""
    (late,) = await with_events(kube, "ns", [pod(60, **creating)], NOW)
    assert trouble(late) == note
