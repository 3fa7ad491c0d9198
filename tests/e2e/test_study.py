"""A hyperparameter study on a real cluster: real trials, real pods, one proof."""

import time

from testing.real_cluster.cluster_actions import Json, World, learnloop

POD: Json = {"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "1"}}}


def study() -> Json:
    """Three tiny trials, two at a time."""
    spec = {
        "algorithm": "ppo",
        "totalSteps": 20_000,
        "data": {"environment": "CartPole-v1"},
        "study": {
            "trials": 3,
            "parallelism": 2,
            "space": [
                {"parameter": "learningRate", "float": {"low": 0.001, "high": 0.01, "log": True}},
                {"parameter": "hidden", "layers": [[32], [64]]},
            ],
            "pruner": {"type": "none"},
        },
        "evaluation": {"episodes": 20},
        "pod": POD,
    }
    return learnloop("TrainingJob", "search", spec)


def test_the_best_of_three_trials_becomes_the_jobs_artifact(world: World, namespace: str) -> None:
    begun = time.monotonic()
    world.apply(namespace, study())
    status = world.phase(namespace, "trainingjobs", "search", "Validated", seconds=300)
    print(f"a study of three trials took {time.monotonic() - begun:.0f} s")
    found = status["study"]
    assert (found["trials"], found["completed"], found["failed"]) == (3, 3, 0)
    best = world.status(namespace, "trainingjobs", found["bestTrial"])
    assert status["artifact"] == best["artifact"]
    assert found["bestValue"] == best["validation"]["mean"]
    values = [world.status(namespace, "trainingjobs", f"search-t{number}")["validation"]["mean"] for number in range(3)]
    assert found["bestValue"] == max(values)
