"""A rollout that begins in shadow, with live traffic: nobody meets the canary before its copies have spoken for it."""

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from world import Json, World, learnloop

PLAYER = """
import collections, json, sys, time, urllib.request

def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)

opened, end = collections.Counter(), time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    episode = post("http://policy:8080/v1/episodes", {})
    opened[episode["revision"]] += 1
    at = episode["url"] + "/v1/episodes/" + episode["episode_id"]
    for _ in range(4):
        post(at + "/act", {"observation": [0, 0, 0, 0]})
    post(at + "/end", {"status": "completed", "episode_return": 4.0, "length": 4, "success": True})
    time.sleep(0.02)
print(json.dumps(opened))
"""
SHADOW = {"minRequests": 100, "minAgreement": 0.9, "minReturnRatio": 0.9, "minEffectiveEpisodes": 10}


def _deployment(release: str) -> Json:
    steps = [{"weight": 0, "shadow": SHADOW}, {"weight": 50, "minEpisodes": 10}, {"weight": 100, "minEpisodes": 10}]
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


@contextmanager
def _players(world: World, namespace: str, pod: str) -> Iterator[Counter[str]]:
    """Agents that play from a pod of the cluster for the time of the block; the revisions their episodes got."""
    opened: Counter[str] = Counter()
    stop = threading.Event()

    def play() -> None:
        while not stop.is_set():
            try:
                out = world.api.run("exec", "-n", namespace, pod, "--", "python3", "-c", PLAYER, "3")
            except subprocess.CalledProcessError:
                return  # the pod goes with its arm once another is promoted; before that, the test will miss traffic
            opened.update(json.loads(out.strip().splitlines()[-1]))

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield opened
    finally:
        stop.set()
        thread.join()


def test_a_canary_is_compared_in_shadow_before_its_first_episode_and_then_promoted(
    world: World, namespace: str
) -> None:
    world.apply(namespace, _deployment("one"))
    world.phase(namespace, "modeldeployments", "policy", "Healthy", seconds=120)
    stable = world.status(namespace, "modeldeployments", "policy")["stable"]["revision"]
    pod = world.api.pods(namespace, f"learnloop.dev/revision={stable}")[0]["metadata"]["name"]

    world.apply(namespace, _deployment("two"))
    said = world.condition(namespace, "modeldeployments", "policy", "Shadowing", "True", 60)
    assert said.startswith("MirroredByServers: ")
    with _players(world, namespace, pod) as opened:
        world.until("copies", lambda: world.status(namespace, "modeldeployments", "policy").get("shadow"), 60)
        if world.canary_weight(namespace, "policy") == 0:
            assert set(opened) <= {stable}, "somebody met the canary while it was in shadow"
        canary = world.until("a weight", lambda: _canary(world, namespace), 60)
    shadow = world.status(namespace, "modeldeployments", "policy")["shadow"]
    assert shadow["requests"] >= SHADOW["minRequests"]
    assert shadow["agreement"] == 1.0
    assert abs(shadow["estimatedReturn"] - 4.0) < 0.01

    with _players(world, namespace, pod):
        world.until("promotion", lambda: _stable(world, namespace) == canary, 60)


def _canary(world: World, namespace: str) -> str | None:
    status = world.status(namespace, "modeldeployments", "policy")
    return str(status["canary"]["revision"]) if status.get("weight") else None


def _stable(world: World, namespace: str) -> str:
    return str(world.status(namespace, "modeldeployments", "policy")["stable"]["revision"])
