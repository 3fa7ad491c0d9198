"""Obvious secrets leave a trajectory before it leaves the process. The data plane redacts again, by the same rules.

Only text is looked at: numbers, identifiers and timestamps pass. This is a net for the obvious, not a classifier:
give `Learnloop(redactor=…)` a better one where agents handle personal data.
"""

import os
from collections.abc import Callable
from typing import Any

from learnloop_api import names
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK
from learnloop_common.key_lines import KeyLines
from learnloop_common.redaction.fields import safe_measurements
from learnloop_common.redaction.keys import SuccessiveRedaction
from learnloop_common.redaction.redactor import Redaction, is_secret_name, user_as_sent
from learnloop_sdk.errors import LearnloopError

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
