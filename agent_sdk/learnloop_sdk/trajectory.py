"""Trajectories as plain data: steps and observations, redaction, encoding, and the POST to the data plane."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK, Trajectory
from learnloop_common.key_lines import KeyLines
from learnloop_common.redaction.fields import safe_measurements
from learnloop_common.redaction.keys import SuccessiveRedaction
from learnloop_common.redaction.redactor import Redaction, is_secret_name, user_as_sent
from learnloop_sdk.errors import Counters, InvalidObservation, LearnloopError, SinkDown, TrajectoryRejected
from learnloop_sdk.http_client import Identity, Posts
from learnloop_sdk.outbox import Outcome, Send
from learnloop_sdk.spool import Parcel

_ATOMS = frozenset((int, float, bool, str, type(None)))
_FLOATS = {float}


def plain(value: Any) -> Any:
    """Arrays and array scalars (anything with tolist) as lists and numbers; a list as a copy of it."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return value[:]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def flat(observation: Any) -> list[float]:
    """An observation as the flat list of floats a policy takes; raises InvalidObservation."""
    value = plain(observation)
    if type(value) is list and set(map(type, value)) <= _FLOATS:
        return value
    numbers: list[float] = []
    _flatten(value, numbers)
    return numbers


def _flatten(value: Any, into: list[float]) -> None:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            _flatten(plain(item), into)
    elif isinstance(value, (bool, int, float)):
        into.append(float(value))
    else:
        raise InvalidObservation(f"observation: a policy takes numbers, not {type(value).__name__}")


Redactor = Callable[[str], str]
MASK = "<SECRET>"
USER = "user_id"
redact_text: Redactor = Redaction()


def default_redactor() -> Redactor:
    """The rules of the contract, with pseudonyms when $LEARNLOOP_PSEUDONYM_KEY has keys: by the one then in use.

    Raises:
        LearnloopError: a key is too short.
    """
    key = os.environ.get(names.ENV_PSEUDONYM_KEY)
    try:
        return SuccessiveRedaction(KeyLines.parse(key)) if key else Redaction()
    except ValueError as error:
        raise LearnloopError(f"{names.ENV_PSEUDONYM_KEY}: {error}") from None


def redact_value(value: Any, redactor: Redactor) -> Any:
    """`value` with `redactor` applied to every string; what stands under a key such as `password` is masked whole.

    With the rules of the contract everything is as the data plane does it: the same pseudonyms, the same depth.
    """
    if isinstance(redactor, Redaction):
        return redactor.value(value)
    if isinstance(value, str):
        return redactor(value)
    if isinstance(value, dict):
        return {
            key: MASK if is_secret_name(key) and item is not None else redact_value(item, redactor)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [redact_value(item, redactor) for item in value]
    return value


def redact_trajectory(trajectory: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """A wire.Trajectory as plain data, its free text redacted. Numeric observations cost nothing.

    The id of the person it belongs to stays one: people who opted out are known by it.
    """
    steps = [
        step
        if isinstance(step["observation"], list) and isinstance(step["action"], (int, list))
        else step
        | {"observation": redact_value(step["observation"], redactor), "action": redact_value(step["action"], redactor)}
        for step in trajectory["steps"]
    ]
    metadata, outcome = trajectory["metadata"], trajectory["outcome"]
    last = trajectory.get("last_observation")
    if last is not None and not isinstance(last, list):
        trajectory = trajectory | {"last_observation": redact_value(last, redactor)}
    if trajectory.get("result") is not None:
        free = {name: redact_value(trajectory["result"].get(name), redactor) for name in ("output", "expected")}
        free["metadata"] = redact_value(trajectory["result"].get("metadata") or {}, redactor)
        trajectory = trajectory | {"result": trajectory["result"] | free}
    person = {USER: user_as_sent(str(metadata[USER]))} if USER in metadata else {}
    return (
        trajectory
        | {
            "task": redactor(trajectory["task"])[:MAX_TASK],  # a mark may be longer than what it stands for
            "policy_revision": redactor(trajectory["policy_revision"])[:MAX_REVISION],
            "outcome": outcome | {"values": safe_measurements(outcome.get("values", {}), redactor)},
            "metadata": redact_value(metadata, redactor) | person,
            "steps": steps,
        }
    )


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
