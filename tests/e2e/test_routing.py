"""Both ways of routing give the same guarantees: the policy servers' own draw, and a real gateway's HTTPRoutes."""

import base64
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.rollback.model import BAD, brittle
from demo.settings import SYSTEM_NAMESPACE
from testing.real_cluster.cluster_actions import Json, Rig, learnloop
from testing.real_cluster.playing_agents import Door, Habits, Played, gateway_door, play, players

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


def _first(rig: Rig, namespace: str, door: Door) -> tuple[str, str]:
    """A stable revision that answers at the door, and a pod to play from."""
    rig.apply(namespace, _deployment(door, "one", UNIFORM, {"weight": WEIGHT}))
    rig.phase(namespace, "modeldeployments", "policy", "Healthy", "Guarding", seconds=120)
    stable = rig.status(namespace, "modeldeployments", "policy")["stable"]["revision"]
    pod = rig.api.pods(namespace, f"learnloop.dev/revision={stable}")[0]["metadata"]["name"]
    once = Habits(infers=True)
    rig.until("an answer", lambda: not play(rig, namespace, pod, door, once, episodes=1).failed, 60)
    return stable, pod


class Canary:
    """A rollout behind one door that waits at its first step, and an agent that knocks there."""

    def __init__(self, rig: Rig, namespace: str, door: Door) -> None:
        self.rig, self.namespace, self.door = rig, namespace, door
        self.stable = self.pod = self.revision = ""

    def plays(self, episodes: int) -> Played:
        few = Habits(infers=True, steps=1, rest=0.0)
        return play(self.rig, self.namespace, self.pod, self.door, few, episodes=episodes)

    def status(self) -> Json:
        return self.rig.status(self.namespace, "modeldeployments", "policy")

    def gets_its_share(self) -> None:
        self.stable, self.pod = _first(self.rig, self.namespace, self.door)
        self.rig.apply(self.namespace, _deployment(self.door, "two", UNIFORM, {"weight": WEIGHT, "pause": True}))
        self.rig.until("a canary", lambda: self.status().get("weight"), 120)
        self.revision = self.status()["canary"]["revision"]
        met = Played()

        def meets() -> bool:
            met.add(self.plays(20))
            return self.revision in met.opened

        self.rig.until("its first episode", meets, 60)
        played = self.plays(300)
        met.add(played)
        assert not met.gave_up, f"an episode failed: {met.gave_up}"
        assert met.mixed == 0, "an episode was answered by two arms"
        _follows_the_weight(played.opened[self.revision], 300)
        if self.door.routing["mode"] == "gateway":  # by the number of pods in service mode
            _follows_the_weight(played.inferred[self.revision], 300)

    def meets_nobody_once_its_table_expires(self) -> None:
        self.rig.expire_routing(self.namespace, "policy")

        def alone() -> bool:
            revisions = self.plays(20)
            return set(revisions.opened) == set(revisions.inferred) == {self.stable}

        self.rig.until("stable alone", alone, 30)
        assert _everybody_meets(self.plays(100), self.stable)

    def comes_back_and_is_aborted(self) -> None:
        self.rig.until("the canary again", lambda: self.revision in self.plays(20).opened, 60)
        me = self.rig.api.run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
        decision = f"learnloop.dev/abort={self.revision} by {me}"
        self.rig.api.run("annotate", "-n", self.namespace, "mdep", "policy", decision, "--overwrite")
        self.rig.until("weight 0", lambda: self.status().get("blockedRevision"), 60)
        self.rig.until("stable alone", lambda: _everybody_meets(self.plays(20), self.stable), 30)


@pytest.mark.disturbs
@pytest.mark.gateway
def test_a_canary_by_service_or_gateway_keeps_its_share_and_without_the_operator_everybody_is_stables(rig, doors):
    canaries = [Canary(rig, namespace, door) for namespace, door in doors.items()]
    with ThreadPoolExecutor(len(canaries)) as side_by_side:
        list(side_by_side.map(Canary.gets_its_share, canaries))
        rig.scale(OPERATOR, 0)
        try:
            selector = "app.kubernetes.io/component=operator"
            rig.api.run("wait", "-n", SYSTEM_NAMESPACE, "--for=delete", "pod", "-l", selector, "--timeout=60s")
            list(side_by_side.map(Canary.meets_nobody_once_its_table_expires, canaries))
        finally:
            rig.scale(OPERATOR, 1)
        list(side_by_side.map(Canary.comes_back_and_is_aborted, canaries))


@pytest.mark.gateway
def test_a_failing_canary_by_gateway_meets_nobody_in_shadow_and_is_taken_from_its_users_within_seconds(rig, namespace):
    door = gateway_door(namespace)
    stable, pod = _first(rig, namespace, door)
    broken = _upload(rig, namespace, pod, "broken")
    hard = Habits(number=BAD, steps=2)

    shadow = {"weight": 0, "shadow": {"minRequests": 100_000}}
    rig.apply(namespace, _deployment(door, "two", broken, shadow))
    with players(rig, namespace, pod, Habits(number=BAD, infers=True), door) as played:
        first = rig.until("rolled back", lambda: _blocked(rig, namespace, ""), 90)
    assert _everybody_meets(played, stable)

    broken_too = _upload(rig, namespace, pod, "broken too")
    rig.apply(namespace, _deployment(door, "three", broken_too, {"weight": 50, "minEpisodes": 100_000}))
    rig.until("a canary", lambda: rig.status(namespace, "modeldeployments", "policy").get("weight") == 50, 120)
    with players(rig, namespace, pod, hard, door):
        began = time.monotonic()
        rig.until("rolled back", lambda: _blocked(rig, namespace, first), 60, every=0.1)
        took = time.monotonic() - began
    assert took < 15, f"users met a broken canary for {took:.0f} s"
    rig.until("stable alone", lambda: _everybody_meets(play(rig, namespace, pod, door, hard, episodes=30), stable), 15)


def _follows_the_weight(canarys: int, all_: int) -> None:
    """Four standard deviations of a binomial: wrong once in 15,000 runs."""
    share = WEIGHT / 100
    assert abs(canarys - share * all_) <= 4 * math.sqrt(all_ * share * (1 - share)), f"{canarys} of {all_}"


def _everybody_meets(played: Played, revision: str) -> bool:
    return played.failed == 0 and set(played.opened) == {revision} and set(played.inferred) <= {revision}


def _blocked(rig: Rig, namespace: str, other_than: str) -> str:
    blocked = rig.status(namespace, "modeldeployments", "policy").get("blockedRevision") or {}
    revision = str(blocked.get("revision", ""))
    return revision if revision != other_than else ""


def _upload(rig: Rig, namespace: str, pod: str, name: str) -> Json:
    """spec.model of a policy that works until it is asked about BAD, in the data plane by a token of the namespace."""
    body = base64.b64encode(brittle(name)).decode()
    out = rig.api.run("exec", "-i", "-n", namespace, pod, "--", "python3", "-c", PUT_ARTIFACT, stdin=body)
    facts = json.loads(out.strip().splitlines()[-1])
    return {"uri": facts["uri"], "sha256": facts["sha256"]}
