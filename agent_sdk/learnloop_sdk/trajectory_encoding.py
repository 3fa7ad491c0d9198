"""Trajectories as plain data: steps and observations, redaction and encoding."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK, Trajectory
from learnloop_common.key_rotation import KeyLines
from learnloop_common.redaction.redactor import Redaction, safe_measurements, user_as_sent
from learnloop_sdk.errors import Counters, InvalidObservation, LearnloopError

log = logging.getLogger(__name__)
_ATOMS = frozenset((int, float, bool, str, type(None)))
_FLOATS = {float}


def plain(value: Any) -> Any:
    """Convert arrays and array scalars (anything with tolist) to lists and numbers; copy a list."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return value[:]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def observed(observation: Any) -> Any:
    """Plain data for a step: a single number, as of a discrete world, becomes a list of one."""
    value = plain(observation)
    return [value] if isinstance(value, int | float) else value


def flat(observation: Any) -> list[float]:
    """Flatten an observation to the list of floats that a policy accepts; raises InvalidObservation."""
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


USER = "user_id"
redact_text = Redaction()


def default_redactor() -> Redaction:
    """Make the default redactor, with pseudonyms by the key of $LEARNLOOP_PSEUDONYM_KEY that is in use.

    Raises LearnloopError where a key is too short.
    """
    key = os.environ.get(names.ENV_PSEUDONYM_KEY)
    try:
        return Redaction(KeyLines.parse(key) if key else None)
    except ValueError as error:
        raise LearnloopError(f"{names.ENV_PSEUDONYM_KEY}: {error}") from None


def redact_trajectory(trajectory: dict[str, Any], redactor: Redaction) -> dict[str, Any]:
    """Redact the free text of a wire.Trajectory in plain data; numeric observations are passed on.

    The id of its person stays the same for the same person: people who opted out are recognised by it.
    """
    metadata, outcome, result = trajectory["metadata"], trajectory["outcome"], trajectory.get("result")
    steps = [
        step
        if isinstance(step["observation"], list) and isinstance(step["action"], (int, list))
        else step | {name: redactor.value(step[name]) for name in ("observation", "action")}
        for step in trajectory["steps"]
    ]
    clean = {
        "task": redactor(trajectory["task"])[:MAX_TASK],  # a mark may be longer than the text it replaces
        "policy_revision": redactor(trajectory["policy_revision"])[:MAX_REVISION],
        "outcome": outcome | {"values": safe_measurements(outcome.get("values", {}), redactor)},
        "metadata": redactor.value(metadata),
        "steps": steps,
    }
    if USER in metadata:
        clean["metadata"] |= {USER: user_as_sent(str(metadata[USER]))}
    last = trajectory.get("last_observation")
    if last is not None and not isinstance(last, list):
        clean["last_observation"] = redactor.value(last)
    if result is not None:
        free = {name: redactor.value(result.get(name)) for name in ("output", "expected")}
        clean["result"] = result | free | {"metadata": redactor.value(result.get("metadata") or {})}
    return trajectory | clean


Decision = tuple[Any, Any, float | None, bool, float | None]
"""Answer of act: observation, action, log-probability, whether it was sampled, and the policy's estimate of it."""


def step(decision: Decision, reward: float, terminated: bool = False, truncated: bool = False) -> dict[str, Any]:
    """Make a wire.Step in plain data."""
    observation, action, log_prob, exploration, value = decision
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


def encoded(trajectory: Mapping[str, Any], redactor: Redaction, counters: Counters) -> bytes | None:
    """Redact, check and encode a wire.Trajectory in plain data; None, counted and logged, where that fails."""
    try:
        clean = Trajectory.model_validate(redact_trajectory(dict(trajectory), redactor))
        return clean.model_dump_json(exclude_defaults=True).encode()
    except ValidationError as error:
        log.error("trajectory not recorded: %s", error.errors(include_url=False, include_input=False)[:3])
    counters.trajectories_rejected += 1
    return None
