"""Breaches of learnloop's canaries, one after the other in each ModelDeployment."""

from bench.rollback.breaching import Canary
from bench.rollback.rig import Rig
from bench.rollback.weights import Weights

WEIGHT = 50
REQUESTED = {"requests": {"cpu": "50m", "memory": "128Mi"}}
"""Of every policy server's pod, ours and the peer's."""
CALM_SECONDS = 3.0
"""A breach begins up to so long after the canary got its weight: any phase of the second that the lane reads in."""


def name_of(index: int) -> str:
    return f"ours-{index}"


def deployment(rig: Rig, index: int, release: int) -> dict[str, object]:
    """A ModelDeployment that holds its canary at WEIGHT; release 0 is the honest first model."""
    name = name_of(index)
    model = {"uri": "uniform://discrete/2?observations=4"} if release == 0 else rig.model
    environment = [{"name": "RELEASE", "value": str(release)}]
    return {
        "apiVersion": "learnloop.dev/v1alpha1",
        "kind": "ModelDeployment",
        # What was rolled back stays blocked by its artifact: each release says retry, and who says so.
        "metadata": {"name": name, "annotations": {"learnloop.dev/retry": f"all at release {release} by {rig.user}"}},
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


def canary(rig: Rig, weights: Weights, index: int) -> Canary:
    """A deployment of ours, as breaches go through it."""
    name = name_of(index)
    return Canary(
        side="learnloop",
        name=name,
        weight=WEIGHT,
        calm_seconds=CALM_SECONDS,
        patience_seconds=90,
        release=lambda release: rig.apply(deployment(rig, index, release)),
        has_weight=lambda: _at(weights, name, WEIGHT),
        has_none=lambda: _at(weights, name, 0),
    )


def _at(weights: Weights, name: str, weight: int) -> bool:
    """The HTTPRoute says so, and the routing table lists a canary, or none where users get nothing of it."""
    return weights.route.get(name) == weight and weights.listed.get(name) == int(weight > 0)
