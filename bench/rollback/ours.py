"""Breaches of learnloop's canaries, one after the other in each ModelDeployment."""

import asyncio
import random

from bench.rollback.figures import Breach
from bench.rollback.traffic import Traffic
from bench.rollback.weights import Weights
from bench.rollback.world import World

WEIGHT = 50
REQUESTED = {"requests": {"cpu": "50m", "memory": "128Mi"}}
"""Of every policy server's pod, ours and the peer's."""
CALM_SECONDS = 3.0
"""A breach begins up to so long after the canary got its weight: any phase of the second that the lane reads in."""


def name_of(index: int) -> str:
    return f"ours-{index}"


def deployment(world: World, index: int, release: int) -> dict[str, object]:
    """A ModelDeployment that holds its canary at WEIGHT; release 0 is the honest first model."""
    name = name_of(index)
    model = {"uri": "uniform://discrete/2?observations=4"} if release == 0 else world.model
    environment = [{"name": "RELEASE", "value": str(release)}]
    return {
        "apiVersion": "learnloop.dev/v1alpha1",
        "kind": "ModelDeployment",
        # What was taken back stays blocked by its artifact: each release says retry.
        "metadata": {"name": name, "annotations": {"learnloop.dev/retry": f"all at release {release}"}},
        "spec": {
            "model": model,
            "serving": {"pod": {"env": environment, "resources": REQUESTED}},
            "routing": {
                "mode": "gateway",
                "gateway": {"name": "gateway", "namespace": "gateway"},
                "hostnames": [f"{name}.example.com"],
            },
            "rollout": {"steps": [{"weight": WEIGHT, "minEpisodes": 1_000_000}, {"weight": 100}]},
            "analysis": {"metrics": [{"name": "errors", "type": "errors", "max": 0.05}]},
        },
    }


async def breaches(
    world: World, weights: Weights, traffic: Traffic, index: int, rounds: int, found: list[Breach]
) -> None:
    """`rounds` times: a release, half the requests of the canary fail, and seconds until its weight is 0."""
    name = name_of(index)
    for release in range(1, rounds + 1):
        await asyncio.to_thread(world.apply, deployment(world, index, release))
        await weights.until(lambda: _at(weights, name, WEIGHT), 180, f"{name}: {WEIGHT} % for a canary")
        await asyncio.sleep(random.uniform(0.0, CALM_SECONDS))
        traffic.breach()
        done = await weights.until(
            lambda: traffic.first_failure is not None and _at(weights, name, 0),
            90,
            f"{name}: weight 0",
        )
        found.append(traffic.over(done))
        print(f"  learnloop  {name} release {release}: {found[-1]}", flush=True)


def _at(weights: Weights, name: str, weight: int) -> bool:
    """The HTTPRoute says so, and the routing table lists a canary, or none where users get nothing of it."""
    return weights.route.get(name) == weight and weights.listed.get(name) == int(weight > 0)
