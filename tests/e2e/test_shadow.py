"""A rollout that begins in shadow, with live traffic: nobody meets the canary before its copies have spoken for it."""

from players import players
from world import Json, World, learnloop

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
    with players(world, namespace, pod) as opened:
        world.until("copies", lambda: world.status(namespace, "modeldeployments", "policy").get("shadow"), 60)
        if world.canary_weight(namespace, "policy") == 0:
            assert set(opened) <= {stable}, "somebody met the canary while it was in shadow"
        canary = world.until("a weight", lambda: _canary(world, namespace), 60)
    shadow = world.status(namespace, "modeldeployments", "policy")["shadow"]
    assert shadow["requests"] >= SHADOW["minRequests"]
    assert shadow["agreement"] == 1.0
    assert abs(shadow["estimatedReturn"] - 4.0) < 0.01

    with players(world, namespace, pod):
        world.until("promotion", lambda: _stable(world, namespace) == canary, 60)


def _canary(world: World, namespace: str) -> str | None:
    status = world.status(namespace, "modeldeployments", "policy")
    return str(status["canary"]["revision"]) if status.get("weight") else None


def _stable(world: World, namespace: str) -> str:
    return str(world.status(namespace, "modeldeployments", "policy")["stable"]["revision"])
