"""What else than experience and time may call for a run: another world, another reward, a commit, an anomaly, drift.

Each is a value that is compared with the one that was seen when the newest run began. The values stand in the status,
and on each TrainingJob, so that an operator that dies between the two starts no second run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from learnloop_api import names
from learnloop_api.kinds.learning_agent import Change, ChangeSeen
from learnloop_operator.agents.first_policy import spaces, world_of
from learnloop_operator.agents.snapshot import AgentSnapshot
from learnloop_operator.core.content_digests import revision
from learnloop_operator.core.times import seconds_since

DRIFT = "SlowDecline"
"""Reason of the condition Anomalous that is drift; every other one is an anomaly."""
_SENTENCES: Mapping[Change, str] = {
    "environment": "the environment is another one than the last run's ({before} -> {now})",
    "rewardRevision": "reward revision {now} is in force, and the last run learned by {before}",
    "commit": "commit {now} after {before}",
    "anomaly": "an anomaly since {now}",
    "drift": "returns decline since {now}",
}
_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class ChangeVerdict:
    """What has changed: `kind` and the sentence; `rest`: seconds until it may start a run."""

    kind: Change
    sentence: str
    rest: float


def verdict(world: AgentSnapshot) -> ChangeVerdict | None:
    """The change that may start a run first; None: nothing has changed."""
    training = world.spec.training
    if training is None or not training.triggers.on:
        return None
    current, known = values(world), {item.trigger: item for item in world.before.changes or ()}
    found = []
    for kind in training.triggers.on:
        old, now = known.get(kind), current.get(kind, "")
        if old is None or not now or now == old.value:
            continue
        rest = training.triggers.on_interval_seconds - seconds_since(old.at, world.now) if old.at else 0.0
        found.append(ChangeVerdict(kind, _sentence(world, kind, old.value or _NOTHING, now), max(0.0, rest)))
    return min(found, key=lambda item: item.rest, default=None)


def values(world: AgentSnapshot) -> dict[Change, str]:
    """What each change is measured by, as it is now; "" where there is nothing."""
    anomalous = next((item for item in world.before.conditions if item.type == "Anomalous"), None)
    since = anomalous.last_transition_time if anomalous and anomalous.status == "True" else ""
    drifts = anomalous is not None and anomalous.reason == DRIFT
    return {
        "environment": _environment(world),
        "rewardRevision": world.policy.revision or "",
        "commit": world.annotations.get(names.ANNOTATION_COMMIT, ""),
        "anomaly": "" if drifts else since,
        "drift": since if drifts else "",
    }


def remembered(world: AgentSnapshot, fired: str | None) -> list[ChangeSeen] | None:
    """The status's record after this pass. `fired`: the trigger of the run that begins now; None: none does."""
    training = world.spec.training
    if training is None or not training.triggers.on:
        return None
    current, known = values(world), {item.trigger: item for item in world.before.changes or ()}
    kept = []
    for kind in training.triggers.on:
        old, now = known.get(kind), current.get(kind, "")
        if old is None:
            # Whoever asks for a trigger wants the next change; what is wrong already is wrong now.
            first = "" if kind in ("anomaly", "drift") and fired is None else now
            if kind == "rewardRevision" and not first:
                continue
            kept.append(ChangeSeen(trigger=kind, value=first, at=world.time if fired == kind else None))
        elif fired is None:
            kept.append(old)
        else:
            kept.append(ChangeSeen(trigger=kind, value=now or old.value, at=world.time if fired == kind else old.at))
    return kept


def noted(seen: list[ChangeSeen] | None) -> str:
    """The record as an annotation of the run; "" for none."""
    return json.dumps({item.trigger: item.value for item in seen}, sort_keys=True) if seen else ""


def recalled(known: list[ChangeSeen] | None, note: str, fired: str, at: str) -> list[ChangeSeen] | None:
    """The record as the newest run's annotation has it, where that is newer than the status."""
    try:
        found = json.loads(note) if note else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return known
    old = {item.trigger: item for item in known or ()}
    seen = []
    for kind in _SENTENCES:
        if isinstance(found.get(kind), str):
            last = old[kind].at if kind in old else None
            seen.append(ChangeSeen(trigger=kind, value=found[kind][:1024], at=at if fired == kind else last))
    return seen or known


def _sentence(world: AgentSnapshot, kind: Change, before: str, now: str) -> str:
    said = _SENTENCES[kind].format(before=before[:64], now=now[:64])
    anomalous = next((item for item in world.before.conditions if item.type == "Anomalous"), None)
    return f"{said}: {anomalous.message}"[:1024] if kind in ("anomaly", "drift") and anomalous else said


def _environment(world: AgentSnapshot) -> str:
    """Digest of the world that runs play: its name, code, level, physics, and what is seen and done."""
    task = world.spec.task
    played = task.environment or task.external
    conditions = {key: said for key, said in (played.to_kube() if played else {}).items() if key not in _NOT_THE_WORLD}
    said = spaces(task)
    parts = {"world": world_of(task), "conditions": conditions, "spaces": said.uri() if said else None}
    return revision({**parts, "code": world.environment_code} if world.environment_code else parts)


_NOT_THE_WORLD = ("actors", "successReturn", "name")
"""Who plays it and how much is good changes nothing about it; its name is told beside them."""
