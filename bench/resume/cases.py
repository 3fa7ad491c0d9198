"""The runs that are interrupted: replay with priorities, PPO, SAC, each climbing a curriculum; a few seconds each."""

import copy
from typing import Any

JOB = "interrupted-1"
_CLIMB = {"minEpisodes": 20, "window": 20, "promoteAt": 0.02, "demoteBelow": 0, "until": "advanced"}
_DQN = {"environments": 8, "hidden": [64, 64], "bufferSize": 40_000, "prioritized": True}
_PPO = {"environments": 16, "hidden": [64, 64]}
_SAC = {"environments": 4, "hidden": [64, 64], "batchSize": 128, "stepsPerUpdate": 4, "bufferSize": 40_000}
_SAC |= {"learningStarts": 400}
CASES: dict[str, dict[str, Any]] = {
    "dqn": {
        "algorithm": "dqn",
        "hyperparameters": _DQN,
        "totalSteps": 20_000,
        "data": {"environment": "grids:Exploration", "level": "beginner"},
        "curriculum": _CLIMB,
    },
    "ppo": {
        "algorithm": "ppo",
        "hyperparameters": _PPO,
        "totalSteps": 80_000,
        "data": {"environment": "grids:Exploration", "level": "beginner"},
        "curriculum": _CLIMB,
    },
    "sac": {
        "algorithm": "sac",
        "hyperparameters": _SAC,
        "totalSteps": 6_000,
        "data": {
            "environment": "motion:Navigation",
            "level": "beginner",
            "randomise": [{"parameter": "gain", "low": 0.8, "high": 1.2}],
        },
        "curriculum": _CLIMB,
    },
}


def order(case: str, **changes: Any) -> dict[str, Any]:
    """LEARNLOOP_TRAINING_SPEC of a case; `changes` go into the spec."""
    spec = {"evaluation": {"episodes": 8}, "gates": {"significant": False}, **CASES[case], **changes}
    return copy.deepcopy({"job": JOB, "attempt": 0, "spec": spec})
