"""Half hours of a healthy canary whose pod pauses now and then, as a garbage collector or a neighbour makes it."""

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.checks.hard_bound import Reading
from learnloop_operator.rollout.fast_lane import PodEvidence, breach, looked, of_episodes

START = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = ModelDeploymentSpec.model_validate(
    {
        "model": {"uri": "https://models.example/1.onnx", "sha256": "ab" * 32},
        "rollout": {"steps": [{"weight": 10}, {"weight": 100}]},
        "analysis": {"metrics": [{"name": "latency", "type": "latency", "max": 0.1, "minEpisodes": 1}]},
    }
)
BOUNDS = (0.05, 0.1, 0.25, 1.0, math.inf)
HALF_HOUR, EVERY, PAUSE, PER_SECOND = 1_800, 120, 0.5, 40
PROMPT = 0.01


def rolled_back(seeds: Sequence[int], pause: float = PAUSE, every: int = EVERY) -> list[str]:
    """The sentence of each half hour in which the fast lane rolls the canary back."""
    return [message for message in (_half_hour(random.Random(seed), pause, every) for seed in seeds) if message]


def _half_hour(source: random.Random, pause: float, every: int) -> str:
    """The fast lane reads the pod each second. Requests that arrive in a pause wait for its end."""
    spec = of_episodes(SPEC, 10)
    direct = PodEvidence("1" * 8, stamp(START), 10, steady=True)
    counters = {"requests": 0.0, "failed": 0.0, "ended/success": 0.0} | {f"within/{bound!r}": 0.0 for bound in BOUNDS}
    first = source.uniform(0.0, every)
    for second in range(HALF_HOUR):
        for _ in range(PER_SECOND):
            took = PROMPT + max(0.0, pause - (second + source.random() - first) % every)
            counters["requests"] += 1.0
            for bound in BOUNDS:
                counters[f"within/{bound!r}"] += took <= bound
        counters["ended/success"] += 1.0
        now = START + timedelta(seconds=second + 1)
        direct = looked(direct, {"pod": Reading(1.0, dict(counters))}, spec, now, second + 1)
        if why := breach(spec, direct.alarms, "the canary"):
            return why
    return ""


def figures(half_hours: int) -> dict[str, object]:
    """Rollbacks for a pause of half a second every two minutes; and for one of a second in every two, which is slow."""
    seeds = range(half_hours)
    return {
        "pauses_half_hours": half_hours,
        "pauses_rolled_back": len(rolled_back(seeds)),
        "pauses_that_never_end_rolled_back": len(rolled_back(seeds, pause=1.0, every=2)),
    }
