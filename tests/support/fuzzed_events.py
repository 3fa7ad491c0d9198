"""Messages on a trajectory subject that are no trajectories, each wrong in its own way."""

import json
import random
from typing import Any

AGENT = "fuzzed"


def event(trajectory_id: str) -> dict[str, Any]:
    """A small valid trajectory of `AGENT`."""
    step = {"observation": [0.1, 0.2, 0.3, 0.4], "action": 1, "log_prob": -0.7, "reward": 1.0}
    return {
        "trajectory_id": trajectory_id,
        "agent": AGENT,
        "task": "cartpole",
        "episode_id": trajectory_id,
        "policy_revision": "3f9a2c81",
        "started_at": "2026-01-31T12:00:00+00:00",
        "ended_at": "2026-01-31T12:00:01+00:00",
        "steps": [dict(step) for _ in range(3)],
        "outcome": {"status": "completed", "episode_return": 3.0, "success": True},
    }


def fuzzed(rng: random.Random, number: int) -> bytes:
    """A trajectory with one thing wrong, or no trajectory at all; never a valid one."""
    body = event(f"bad{number}")
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 200)) + b"\x00"
    if kind == 1:
        return json.dumps(body).encode()[: rng.randrange(1, 200)]
    if kind == 2:
        return json.dumps(rng.choice([None, [], 7, "text", {}, [body]])).encode()
    if kind == 3:
        del body[rng.choice(["trajectory_id", "agent", "episode_id", "steps", "outcome", "started_at"])]
    elif kind == 4:
        wrong = rng.choice([[None], "x", None])
        body[rng.choice(["steps", "outcome", "metadata", "retrieval_ids", "started_at"])] = wrong
    elif kind == 5:
        body["steps"][rng.randrange(3)]["observation"] = rng.choice([[], [None], None, 3, ["x"]])
    elif kind == 6:
        body["agent"] = rng.choice(["somebody-else", "UPPER", "", "a" * 300, 12])
    else:
        body[f"field{rng.randrange(9)}"] = "[" * rng.randrange(1, 500)
    return json.dumps(body).encode()
