"""The events of specification 001 and their JSON Schemas (2020-12), generated from the wire models.

`python -m learnloop_api.events write` brings the files in `schemas/agent-rl/` up to date, `… check` says which are not.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from learnloop_api import names
from learnloop_api.wire import base, deployment, reward, training_request, trajectory

FOLDER = Path(__file__).parent / "schemas" / "agent-rl"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
NOON = "2026-01-31T12:00:00Z"

EVENTS: dict[str, tuple[type[base.WireModel], dict[str, Any]]] = {
    names.SUBJECT_TRAJECTORY: (
        trajectory.Trajectory,
        {
            "trajectory_id": "0197c2f0-walker-1",
            "agent": "walker",
            "task": "reach the door",
            "episode_id": "0197c2f0-walker-1",
            "policy_revision": "3f9a2c81",
            "started_at": NOON,
            "ended_at": "2026-01-31T12:00:09Z",
            "steps": [
                {"observation": [0.1, -0.2], "action": 1, "log_prob": -0.7, "reward": 1.0},
                {"observation": {"page": "the door is open"}, "action": "walk", "reward": 2.0, "terminated": True},
            ],
            "outcome": {"status": "completed", "episode_return": 3.0, "success": True, "values": {"tool_errors": 0}},
        },
    ),
    names.SUBJECT_REWARD: (
        reward.Reward,
        {
            "trajectory_id": "0197c2f0-walker-1",
            "agent": "walker",
            "reward_policy": "walker",
            "reward_policy_revision": "8c1d4e02",
            "components": {"completion": 1.0, "efficiency": 0.8, "quality": 0.5, "feedback": 1.0},
            "raw_reward": 0.885,
            "reward": 1.2,
            "computed_at": NOON,
            "credit_assigned": 0.6,
            "credits": [
                {"agent": "walker", "credit_assigned": 0.6, "method": "equal"},
                {"agent": "scout", "credit_assigned": 0.6, "method": "equal"},
            ],
            "weights": {"completion": 0.4, "efficiency": 0.2, "quality": 0.15, "feedback": 0.25},
            "evaluators": {"quality": "fuzzy"},
            "normalisation": {"method": "zscore", "clip": 10},
        },
    ),
    names.SUBJECT_TRAINING_REQUEST: (
        training_request.TrainingRequest,
        {
            "request_id": "nightly-2026-01-31",
            "reason": "the new opponents arrived",
            "dataset": {"since": NOON, "success": True},
            "hyperparameters": {"learningRate": 0.0003},
            "compute": {"workers": 1},
            "evaluation": {"episodes": 200},
        },
    ),
    names.SUBJECT_TRAINING_STATUS: (
        training_request.TrainingStatus,
        {
            "status": "running",
            "progress": 0.2,
            "job": "walker-7",
            "attempt": 0,
            "phase": "training",
            "step": 20_000,
            "total_steps": 100_000,
            "world_size": 2,
            "steps_per_second": 812.5,
            "eta_seconds": 98.5,
            "at": NOON,
        },
    ),
    names.SUBJECT_MODEL_DEPLOYED: (
        deployment.ModelDeployed,
        {
            "model_deployment": "walker",
            "revision": "3f9a2c81",
            "uri": "learnloop://team-a/" + "0" * 64,
            "sha256": "0" * 64,
            "previous_revision": "77ab01de",
            "canary_weights": [50, 100],
            "schedule": [
                {"weight": 50, "min_seconds": 600, "min_episodes": 20},
                {"weight": 100, "min_seconds": 0, "min_episodes": 20},
            ],
            "verdict": "promoted 3f9a2c81 after 412 episodes, mean return 187.2",
            "deployed_at": NOON,
        },
    ),
}


def schema(subject: str) -> dict[str, Any]:
    """The schema of one event's body, with an example.

    Raises:
        KeyError: no such event.
    """
    model, example = EVENTS[subject]
    return {"$schema": DIALECT, "$id": f"urn:learnloop:{subject}", **model.model_json_schema(), "examples": [example]}


def path(subject: str) -> Path:
    """The file of one event: trajectory.v1.schema.json."""
    return FOLDER / f"{subject.removeprefix('agent.rl.')}.schema.json"


def text(subject: str) -> str:
    """The content that file must have."""
    return json.dumps(schema(subject), indent=2, ensure_ascii=False) + "\n"


def stale() -> list[Path]:
    """Files that are missing, differ, or belong to no event."""
    wanted = {path(subject): text(subject) for subject in EVENTS}
    differing = [file for file, content in wanted.items() if not file.is_file() or file.read_text() != content]
    return sorted(differing + [file for file in FOLDER.glob("*") if file not in wanted])


def main() -> int:
    """Run one verb. Returns 0, or 1 when `check` finds a file that differs."""
    parser = argparse.ArgumentParser(prog="python -m learnloop_api.events", description=__doc__)
    parser.add_argument("verb", choices=["write", "check"])
    if parser.parse_args().verb == "write":
        for subject in EVENTS:
            path(subject).write_text(text(subject))
    differing = stale()
    for file in differing:
        print(f"{file} is stale: run `python -m learnloop_api.events write` and commit the result", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
