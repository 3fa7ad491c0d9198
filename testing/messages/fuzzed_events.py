"""Messages on a trajectory subject: some broken trajectories, each wrong in its own way, and some in doubt."""

import json
import random
from collections.abc import Iterator
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


_TIMES = (
    "2026-01-31T12:00:00Z",
    "2026-01-31t12:00:00.123456789z",
    "2026-01-31T12:00:00-23:59",
    "2026-01-31 12:00:00Z",
    "2026-01-31T12:00Z",
    "2026-01-31T12:00:00+0100",
    "2026-02-30T00:00:00Z",
    "2026-01-31",
    "1700000000",
)
_VALUES: tuple[Any, ...] = (
    (None, True, False, 0, 1, 1.0, -1.5, 1e17, 2**53 - 1, 2**53, -(2**53), 2**70, 3e38, 4e38, -4e38)
    + ("", "x", "1", "true", "a b", "a" * 129, "A", "a-", "ü", "completed", "\x00", *_TIMES)
    + ([], [1], [1, 2.5], ["x"], [True], [[1]], {}, {"a": 1}, {"a": "b"}, {"a": [None]})
)
# Written into the text itself: values that Python's encoder never writes, or that are not JSON.
_TEXTS = (b"NaN", b"-Infinity", b"1e999", b"1E2", b"-0.0", b"1.0", b"01", b'"\\ud800"', b'"\\u00e9"', b"[1,]", b" 1 ")


def doubtful(rng: random.Random, number: int) -> bytes:
    """A trajectory with one thing changed, after which it may be valid or not: only the schema can say."""
    body = event(f"doubt{number}") | {
        "model_deployment": "walker",
        "retrieval_ids": ["r1", "r2"],
        "metadata": {"colour": "red"},
    }
    body["outcome"]["values"] = {"tool_errors": 0.0}
    body["steps"][1] |= {"observation": {"page": {"title": "door", "open": True}}, "action": "walk"}
    body["steps"][2] |= {"action": [0.5, 1], "terminated": True, "exploration": False, "observation": "a door"}
    holder, key = rng.choice(list(_places(body)))
    kind = rng.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[f"field{rng.randrange(9)}"] = rng.choice(_VALUES)
    elif kind == 2:
        holder[key] = "@"
        return json.dumps(body).encode().replace(b'"@"', rng.choice(_TEXTS))
    elif kind == 3:
        many = rng.choice([64, 65, 256, 257])
        body["retrieval_ids"] = ["r"] * many
        body["outcome"]["values"] = {f"v{index}": index for index in range(rng.choice([many, 1]))}
    else:
        holder[key] = rng.choice(_TIMES if str(key).endswith("_at") else _VALUES)
    if isinstance(body.get("trajectory_id"), str):
        body["trajectory_id"] += str(number)  # no two with the same one
    return json.dumps(body).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON document: what holds it, and under which key or index."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)
