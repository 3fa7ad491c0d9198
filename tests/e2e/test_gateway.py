"""Gateway mode through a real Gateway API implementation: exact weights, and an episode that stays with its arm."""

import json
import os
import subprocess
from collections import Counter

import pytest
from world import Json, World, learnloop

from demo.settings import ROOT

HOST = "policies.example.com"
PLAYER = """
import collections, json, sys, urllib.error, urllib.request

def post(path, body, arm=None):
    headers = {"content-type": "application/json", "host": sys.argv[2]}
    if arm:
        headers["x-learnloop-arm"] = arm
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)

opened, mixed = collections.Counter(), 0
for _ in range(int(sys.argv[3])):
    episode = post("/v1/episodes", {})
    opened[episode["revision"]] += 1
    for _ in range(3):
        acted = post(f"/v1/episodes/{episode['episode_id']}/act", {"observation": [0, 0, 0, 0]}, episode["revision"])
        mixed += acted["revision"] != episode["revision"]
    end = {"status": "completed", "episode_return": 3.0, "length": 3, "success": True}
    post(f"/v1/episodes/{episode['episode_id']}/end", end, episode["revision"])
print(json.dumps({"opened": opened, "mixed": mixed}))
"""


@pytest.fixture(scope="module")
def gateway(api: object) -> str:
    """Traefik, built and started only because a test asked for it; returns its address inside the cluster."""
    subprocess.run(
        ["python3", str(ROOT / "hack" / "cluster"), "up"], env={**os.environ, "GATEWAY": "1"}, check=True, timeout=1500
    )
    return "http://traefik.traefik.svc"


def _deployment(release: str) -> Json:
    return learnloop(
        "ModelDeployment",
        "policy",
        {
            "model": {"uri": "uniform://discrete/2?observations=4"},
            "serving": {"pod": {"env": [{"name": "RELEASE", "value": release}]}},
            "routing": {
                "mode": "gateway",
                "gateway": {"name": "traefik", "namespace": "traefik"},
                "hostnames": [HOST],
            },
            "rollout": {"steps": [{"weight": 10, "pause": True}, {"weight": 100}], "keepForSeconds": 0},
            "analysis": {"intervalSeconds": 1, "metrics": [{"name": "errors", "type": "errors", "max": 0.05}]},
        },
    )


def _play(world: World, namespace: str, address: str, episodes: int) -> tuple[Counter[str], int]:
    """Plays episodes from a pod inside the cluster, as an agent that knows nothing of learnloop but HTTP."""
    pod = next(
        item["metadata"]["name"]
        for item in world.api.pods(namespace, "learnloop.dev/model-deployment=policy")
        if item["status"]["phase"] == "Running"
    )
    out = world.api.run(
        "exec", "-n", namespace, pod, "--", "python3", "-c", PLAYER, address, HOST, str(episodes)
    )  # fmt: skip
    said = json.loads(out.strip().splitlines()[-1])
    return Counter(said["opened"]), said["mixed"]


@pytest.mark.gateway
def test_the_gateway_gives_the_canary_its_weight_and_keeps_every_episode_on_its_arm(
    world: World, namespace: str, gateway: str
) -> None:
    world.apply(namespace, _deployment("one"))
    world.phase(namespace, "modeldeployments", "policy", "Healthy", "Guarding", seconds=120)
    stable = world.status(namespace, "modeldeployments", "policy")["stable"]["revision"]
    world.until("a route", lambda: _answers(world, namespace, gateway), 60)

    world.apply(namespace, _deployment("two"))
    world.until("a canary", lambda: world.status(namespace, "modeldeployments", "policy").get("weight") == 10, 120)
    canary = world.status(namespace, "modeldeployments", "policy")["canary"]["revision"]
    world.until("the canary's first episode", lambda: canary in _play(world, namespace, gateway, 20)[0], 60)

    opened, mixed = _play(world, namespace, gateway, 200)
    assert mixed == 0, "an episode was answered by two arms"
    assert set(opened) == {stable, canary}
    assert 15 <= opened[canary] <= 25, f"10 % of 200 episodes, but the canary got {opened[canary]}"

    me = world.api.run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    decision = f"learnloop.dev/abort={canary} by {me}"
    world.api.run("annotate", "-n", namespace, "mdep", "policy", decision, "--overwrite")
    world.until("weight 0", lambda: world.status(namespace, "modeldeployments", "policy").get("blockedRevision"), 60)
    world.until("no episode for the canary", lambda: canary not in _play(world, namespace, gateway, 20)[0], 30)


def _answers(world: World, namespace: str, gateway: str) -> bool:
    try:
        return bool(_play(world, namespace, gateway, 1)[0])
    except subprocess.CalledProcessError:
        return False
