"""A trajectory on its way to the data plane: encoded at the end of its episode, posted until it is acknowledged."""

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk.counters import Counters
from learnloop_sdk.errors import LearnloopError, SinkDown, TrajectoryRejected
from learnloop_sdk.recording.recorder import Outcome, Send
from learnloop_sdk.recording.spool import Parcel
from learnloop_sdk.redact import Redactor, redact_trajectory
from learnloop_sdk.transport.http_client import Posts
from learnloop_sdk.transport.identity import Identity

log = logging.getLogger(__name__)
SECONDS = 10.0
PATH = "/api/v1/trajectories"
Decision = tuple[Any, Any, float | None, bool]
"""The last answer of act: observation, action, log-probability, and whether it was drawn."""


def step(
    decision: Decision, reward: float, terminated: bool = False, truncated: bool = False, value: float | None = None
) -> dict[str, Any]:
    """wire.Step as plain data. `value`: what the policy thought the action worth."""
    observation, action, log_prob, exploration = decision
    return {
        "observation": observation,
        "action": action,
        "log_prob": log_prob,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "exploration": exploration,
        "q_value": value,
    }


def encoded(trajectory: Mapping[str, Any], redactor: Redactor, counters: Counters) -> bytes | None:
    """wire.Trajectory, given as plain data, redacted, checked and encoded; None, counted and logged, where that is not
    possible."""
    try:
        clean = Trajectory.model_validate(redact_trajectory(dict(trajectory), redactor))
        return clean.model_dump_json(exclude_defaults=True).encode()
    except ValidationError as error:
        log.error("trajectory not recorded: %s", error.errors(include_url=False, include_input=False)[:3])
    except Exception:  # a redactor is the agent's own code; what it could not clean must not leave the process
        log.exception("trajectory not recorded: the redactor failed")
    counters.trajectories_rejected += 1
    return None


def to_data_plane(http: Posts, address: str, identity: Identity) -> Send:
    """POST /api/v1/trajectories, which answers when the trajectory is durable."""

    async def send(parcel: Parcel) -> Outcome:
        try:
            answer = await http.post(f"{address}{PATH}", parcel.body, identity.headers(), SECONDS)
        except (OSError, TimeoutError, LearnloopError) as error:
            return SinkDown(f"data plane: {str(error) or type(error).__name__}")
        if answer.status in (400, 409, 413, 422):
            return TrajectoryRejected(f"HTTP {answer.status}: {answer.text[:300]}")
        if answer.status >= 300:
            return SinkDown(f"data plane: HTTP {answer.status}: {answer.text[:300]}")
        return None

    return send
