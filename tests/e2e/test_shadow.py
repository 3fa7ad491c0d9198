"""A rollout that begins in shadow, with live traffic: no user meets the canary before its copies have spoken for it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testing.real_cluster.cluster_actions import Json, Rig, learnloop
from testing.real_cluster.playing_agents import Door, Habits, play, players

SHADOW = {"minRequests": 100, "minAgreement": 0.9}
HUNG = Habits(infers=True, rest=0.0)


def _deployment(release: str) -> Json:
    shadow = {"weight": 0, "shadow": SHADOW}
    steps = [shadow, {"weight": 50, "minEpisodes": 10}, {"weight": 100, "minEpisodes": 10}]
    return learnloop(
        "ModelDeployment",
        "policy",
        {
            "model": {"uri": "uniform://discrete/2?observations=4"},
            "serving": {"pod": {"env": [{"name": "RELEASE", "value": release}]}},
            "rollout": {"steps": steps, "keepForSeconds": 0},
            "analysis": {"intervalSeconds": 1, "metrics": [{"name": "errors", "type": "errors", "max": 0.05}]},
        },
    )


def test_a_canary_is_compared_in_shadow_before_its_first_episode_and_then_promoted(rig: Rig, namespace: str) -> None:
    rig.apply(namespace, _deployment("one"))
    rig.phase(namespace, "modeldeployments", "policy", "Healthy", seconds=120)
    stable = rig.status(namespace, "modeldeployments", "policy")["stable"]["revision"]
    pod = rig.api.pods(namespace, f"learnloop.dev/revision={stable}")[0]["metadata"]["name"]

    rig.apply(namespace, _deployment("two"))
    message = rig.condition(namespace, "modeldeployments", "policy", "Shadowing", "True", 60)
    assert message.startswith("Mirrored: ")
    canary = rig.status(namespace, "modeldeployments", "policy")["canary"]["revision"]
    (shadow_pod,) = rig.api.pods(namespace, f"learnloop.dev/revision={canary}")
    with _hanging(canary):
        played = play(rig, namespace, pod, Door(), HUNG, seconds=2)
    # It hangs for as long as they play: who waited for it got no answer at all.
    assert played.failed == 0, "somebody waited for a shadow that hangs"
    assert set(played.opened) | set(played.inferred) == {stable}

    with players(rig, namespace, pod) as played:
        rig.until("copies", lambda: rig.status(namespace, "modeldeployments", "policy").get("shadow"), 60)
        revisions = set(played.opened) | set(played.inferred)
        if rig.canary_weight(namespace, "policy") == 0:
            assert revisions <= {stable}, "somebody met the canary while it was in shadow"
        rig.until("a weight", lambda: rig.status(namespace, "modeldeployments", "policy").get("weight"), 60)
    shadow = rig.status(namespace, "modeldeployments", "policy")["shadow"]
    assert shadow["requests"] >= SHADOW["minRequests"]
    assert shadow["agreement"] == 1.0

    with players(rig, namespace, pod):
        rig.until("promotion", lambda: _stable(rig, namespace) == canary, 60)
    (promoted,) = rig.api.pods(namespace, f"learnloop.dev/revision={canary}")
    assert promoted["metadata"]["uid"] == shadow_pod["metadata"]["uid"], "promotion replaced the pod"
    assert not any(item["restartCount"] for item in promoted["status"]["containerStatuses"]), "promotion restarted it"


@contextmanager
def _hanging(revision: str) -> Iterator[None]:
    """The arm's processes stand still for the time of the block; the local cluster's containers run on this machine."""
    wanted = f"LEARNLOOP_REVISION={revision}\0".encode()
    pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if wanted in _read(path)]
    assert pids, f"no process of revision {revision} runs on this machine"
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended while we were looking
        return b""


def _stable(rig: Rig, namespace: str) -> str:
    return str(rig.status(namespace, "modeldeployments", "policy")["stable"]["revision"])
