"""Both ways of routing give the same guarantees: the policy servers' own draw, and a real gateway's HTTPRoutes."""

import base64
import json
import math
import time

import pytest

from bench.rollback.model import BAD, brittle
from demo.settings import SYSTEM_NAMESPACE
from testing.real_cluster.cluster_actions import Json, World, learnloop
from testing.real_cluster.playing_agents import Door, Habits, Played, play, players

OPERATOR = "deployment/learnloop-operator"
WEIGHT = 20
UNIFORM = {"uri": "uniform://discrete/2?observations=4"}
ERRORS = {"name": "errors", "type": "errors", "max": 0.05}
PUT_ARTIFACT = """
import base64, hashlib, os, ssl, sys, urllib.request
body = base64.b64decode(sys.stdin.read())
token = open("/var/run/secrets/learnloop.dev/token").read().strip()
headers = {"authorization": "Bearer " + token, "x-learnloop-sha256": hashlib.sha256(body).hexdigest()}
request = urllib.request.Request(os.environ["LEARNLOOP_DATA_URL"] + "/api/v1/artifacts", body, headers, method="PUT")
authorities = "/var/run/secrets/learnloop.dev/ca.crt"
trusted = ssl.create_default_context(cafile=authorities) if os.path.exists(authorities) else None
print(urllib.request.urlopen(request, timeout=20, context=trusted).read().decode())
"""


def _deployment(door: Door, release: str, model: Json, *steps: Json) -> Json:
    return learnloop(
        "ModelDeployment",
        "policy",
        {
            "model": model,
            "serving": {"pod": {"env": [{"name": "RELEASE", "value": release}]}},
            "routing": door.routing,
            "rollout": {"steps": [*steps, {"weight": 100}], "keepForSeconds": 0},
            "analysis": {"intervalSeconds": 1, "metrics": [ERRORS]},
        },
    )


def _first(world: World, namespace: str, door: Door) -> tuple[str, str]:
    """A stable revision that answers at the door, and a pod to play from."""
    world.apply(namespace, _deployment(door, "one", UNIFORM, {"weight": WEIGHT}))
    world.phase(namespace, "modeldeployments", "policy", "Healthy", "Guarding", seconds=120)
    stable = world.status(namespace, "modeldeployments", "policy")["stable"]["revision"]
    pod = world.api.pods(namespace, f"learnloop.dev/revision={stable}")[0]["metadata"]["name"]
    once = Habits(infers=True)
    world.until("an answer", lambda: not play(world, namespace, pod, door, once, episodes=1).failed, 60)
    return stable, pod


@pytest.mark.disturbs
def test_a_canary_gets_its_share_and_keeps_its_episodes_and_without_the_operator_everybody_is_stables(
    world: World, namespace: str, door: Door
) -> None:
    stable, pod = _first(world, namespace, door)
    world.apply(namespace, _deployment(door, "two", UNIFORM, {"weight": WEIGHT, "pause": True}))
    world.until("a canary", lambda: world.status(namespace, "modeldeployments", "policy").get("weight"), 120)
    canary = world.status(namespace, "modeldeployments", "policy")["canary"]["revision"]
    few = Habits(infers=True, steps=1, rest=0.0)
    met = Played()

    def meets() -> bool:
        met.add(play(world, namespace, pod, door, few, episodes=20))
        return canary in met.opened

    world.until("its first episode", meets, 60)
    played = play(world, namespace, pod, door, few, episodes=300)
    met.add(played)
    assert not met.gave_up, f"an episode failed: {met.gave_up}"
    assert met.mixed == 0, "an episode was answered by two arms"
    _follows_the_weight(played.opened[canary], 300)
    if door.routing["mode"] == "gateway":  # by the number of pods in service mode
        _follows_the_weight(played.inferred[canary], 300)

    world.scale(OPERATOR, 0)
    try:
        selector = "app.kubernetes.io/component=operator"
        world.api.run("wait", "-n", SYSTEM_NAMESPACE, "--for=delete", "pod", "-l", selector, "--timeout=60s")
        world.expire_routing(namespace, "policy")

        def alone() -> bool:
            seen = play(world, namespace, pod, door, few, episodes=20)
            return set(seen.opened) == set(seen.inferred) == {stable}

        world.until("stable alone", alone, 30)
        assert _everybody_meets(play(world, namespace, pod, door, few, episodes=100), stable)
    finally:
        world.scale(OPERATOR, 1)
    world.until("the canary again", lambda: canary in play(world, namespace, pod, door, few, episodes=20).opened, 60)

    me = world.api.run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    decision = f"learnloop.dev/abort={canary} by {me}"
    world.api.run("annotate", "-n", namespace, "mdep", "policy", decision, "--overwrite")
    world.until("weight 0", lambda: world.status(namespace, "modeldeployments", "policy").get("blockedRevision"), 60)
    world.until(
        "stable alone", lambda: _everybody_meets(play(world, namespace, pod, door, few, episodes=20), stable), 30
    )


@pytest.mark.parametrize("door", [pytest.param("gateway", marks=pytest.mark.gateway)], indirect=True)
def test_a_failing_canary_meets_nobody_in_shadow_and_is_taken_from_its_users_within_seconds(
    world: World, namespace: str, door: Door
) -> None:
    stable, pod = _first(world, namespace, door)
    broken = _upload(world, namespace, pod, "broken")
    hard = Habits(number=BAD, steps=2)

    shadow = {"weight": 0, "shadow": {"minRequests": 100_000}}
    world.apply(namespace, _deployment(door, "two", broken, shadow))
    with players(world, namespace, pod, Habits(number=BAD, infers=True), door) as played:
        first = world.until("rolled back", lambda: _blocked(world, namespace, ""), 90)
    assert _everybody_meets(played, stable)

    broken_too = _upload(world, namespace, pod, "broken too")
    world.apply(namespace, _deployment(door, "three", broken_too, {"weight": 50, "minEpisodes": 100_000}))
    world.until("a canary", lambda: world.status(namespace, "modeldeployments", "policy").get("weight") == 50, 120)
    with players(world, namespace, pod, hard, door):
        began = time.monotonic()
        world.until("rolled back", lambda: _blocked(world, namespace, first), 60, every=0.1)
        took = time.monotonic() - began
    assert took < 15, f"users met a broken canary for {took:.0f} s"
    world.until(
        "stable alone", lambda: _everybody_meets(play(world, namespace, pod, door, hard, episodes=30), stable), 15
    )


def _follows_the_weight(canarys: int, all_: int) -> None:
    """Four standard deviations of a binomial: wrong once in 15,000 runs."""
    share = WEIGHT / 100
    assert abs(canarys - share * all_) <= 4 * math.sqrt(all_ * share * (1 - share)), f"{canarys} of {all_}"


def _everybody_meets(played: Played, revision: str) -> bool:
    return played.failed == 0 and set(played.opened) == {revision} and set(played.inferred) <= {revision}


def _blocked(world: World, namespace: str, other_than: str) -> str:
    found = world.status(namespace, "modeldeployments", "policy").get("blockedRevision") or {}
    revision = str(found.get("revision", ""))
    return revision if revision != other_than else ""


def _upload(world: World, namespace: str, pod: str, name: str) -> Json:
    """spec.model of a policy that works until it is asked about BAD, in the data plane by a token of the namespace."""
    body = base64.b64encode(brittle(name)).decode()
    out = world.api.run("exec", "-i", "-n", namespace, pod, "--", "python3", "-c", PUT_ARTIFACT, stdin=body)
    said = json.loads(out.strip().splitlines()[-1])
    return {"uri": said["uri"], "sha256": said["sha256"]}
