"""Triggers of training: a person's request, episodes, the clock, a change; and the pause after runs without gain.

A change is a value that differs from the one that the newest run began with: environment, reward, commit, anomaly,
drift. The values stand in the status and on each TrainingJob: an operator that dies in between starts no second run.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from croniter import croniter

from learnloop_api import names
from learnloop_api.kinds.learning_agent import Change, ChangeSeen, LastTraining
from learnloop_api.names import ANNOTATION_TRAIN
from learnloop_operator.agents.model_to_serve import spaces, world_of
from learnloop_operator.agents.snapshot import AgentSnapshot
from learnloop_operator.core.manifests import revision
from learnloop_operator.core.times import parse, seconds_since, stamp

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
    """A change: `kind` and the sentence; `rest`: seconds until it may start a run."""

    kind: Change
    sentence: str
    rest: float


def due_change(world: AgentSnapshot) -> ChangeVerdict | None:
    """The change that may start a run first; None: nothing has changed."""
    training = world.spec.training
    if training is None or not training.triggers.on:
        return None
    current, previous = values(world), {item.trigger: item for item in world.before.changes or ()}
    result = []
    for kind in training.triggers.on:
        old, now = previous.get(kind), current.get(kind, "")
        if old is None or not now or now == old.value:
            continue
        rest = training.triggers.on_interval_seconds - seconds_since(old.at, world.now) if old.at else 0.0
        result.append(ChangeVerdict(kind, _sentence(world, kind, old.value or _NOTHING, now), max(0.0, rest)))
    return min(result, key=lambda item: item.rest, default=None)


def values(world: AgentSnapshot) -> dict[Change, str]:
    """Current value of each change; "" where there is none."""
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
    current, previous = values(world), {item.trigger: item for item in world.before.changes or ()}
    retained = []
    for kind in training.triggers.on:
        old, now = previous.get(kind), current.get(kind, "")
        if old is None:
            # A new trigger waits for the next change; an anomaly that lasts already counts.
            first = "" if kind in ("anomaly", "drift") and fired is None else now
            if kind == "rewardRevision" and not first:
                continue
            retained.append(ChangeSeen(trigger=kind, value=first, at=world.time if fired == kind else None))
        elif fired is None:
            retained.append(old)
        else:
            retained.append(
                ChangeSeen(trigger=kind, value=now or old.value, at=world.time if fired == kind else old.at)
            )
    return retained


def note_of_changes(seen: list[ChangeSeen] | None) -> str:
    """The record as an annotation of the run; "" for none."""
    return json.dumps({item.trigger: item.value for item in seen}, sort_keys=True) if seen else ""


def recalled(known: list[ChangeSeen] | None, note: str, fired: str, at: str) -> list[ChangeSeen] | None:
    """The record as the newest run's annotation has it, where that is newer than the status."""
    try:
        result = json.loads(note) if note else None
    except ValueError:
        result = None
    if not isinstance(result, dict):
        return known
    old = {item.trigger: item for item in known or ()}
    observed = []
    for kind in _SENTENCES:
        if isinstance(result.get(kind), str):
            last = old[kind].at if kind in old else None
            observed.append(ChangeSeen(trigger=kind, value=result[kind][:1024], at=at if fired == kind else last))
    return observed or known


def _sentence(world: AgentSnapshot, kind: Change, before: str, now: str) -> str:
    text = _SENTENCES[kind].format(before=before[:64], now=now[:64])
    anomalous = next((item for item in world.before.conditions if item.type == "Anomalous"), None)
    return f"{text}: {anomalous.message}"[:1024] if kind in ("anomaly", "drift") and anomalous else text


def _environment(world: AgentSnapshot) -> str:
    """Digest of the world that runs play: its name, code, level, physics, and what is seen and done."""
    task = world.spec.task
    played = task.environment or task.external
    conditions = {key: text for key, text in (played.to_kube() if played else {}).items() if key not in _NOT_THE_WORLD}
    text = spaces(task)
    parts = {"world": world_of(task), "conditions": conditions, "spaces": text.uri() if text else None}
    return revision({**parts, "code": world.environment_code} if world.environment_code else parts)


_NOT_THE_WORLD = ("actors", "successReturn", "name")
"""Who plays it and how much is good changes nothing about it; its name is compared separately."""


NOTE_WITHOUT_GAIN = f"{names.GROUP}/without-gain"
"""Annotation of a TrainingJob: number of fruitless runs before it, and a digest of what they were asked."""
PATIENCE = 3
FIRST_SECONDS, LONGEST_SECONDS = 600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Rest:
    """A rest: its length and its sentence."""

    seconds: float
    sentence: str


def note_without_gain(world: AgentSnapshot) -> str:
    """The annotation of a run that begins now."""
    return f"{without_gain(world)}/{_digest(world)}"


def without_gain(world: AgentSnapshot) -> int:
    """Number of newest runs in a row that ended without a validated model, under this spec, policy and environment."""
    newest = next((job for job in reversed(world.jobs) if job.finished), None)
    if newest is None or newest.phase == "Validated":
        return 0
    count, _, digest = (newest.notes or {}).get(NOTE_WITHOUT_GAIN, "").partition("/")
    return int(count) + 1 if digest == _digest(world) and count.isdecimal() and len(count) < 7 else 0


def rest_without_gain(world: AgentSnapshot, last: LastTraining | None) -> Rest | None:
    """The rest left after PATIENCE runs without gain; it doubles with each further run."""
    count = without_gain(world)
    if count < PATIENCE or last is None:
        return None
    ended = next((job.finished_at for job in reversed(world.jobs) if job.finished_at), None) or last.at
    pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(count - PATIENCE, 20))
    left = pause - seconds_since(ended, world.now)
    if left <= 0:
        return None
    sentence = (
        f"{count} runs in a row brought no better model: the next one begins in {left:.0f} s, after a change of the "
        "spec, environment code or reward policy, or when asked"
    )
    return Rest(left, sentence)


def _digest(world: AgentSnapshot) -> str:
    spec = {key: part for key, part in world.spec.to_kube().items() if key != "suspend"}
    return revision({"spec": spec, "policy": world.policy.revision, "code": world.environment_code})


DRAWN = re.compile(r"(?i)(^|\s)[rh]")
"""croniter's own additions: no two looks would agree on the next time."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """`kind` is the constant for the status, `sentence` the numbers."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class TriggerVerdict:
    """A trigger to fire now, or what is waited for, and when to look again by the clock alone."""

    fire: Trigger | None = None
    waiting: str = ""
    again_after: float | None = None
    problem: str = ""
    """A trigger that can never fire, with field, value and fix."""


def evaluate(world: AgentSnapshot, last: LastTraining | None) -> TriggerVerdict:
    """The first trigger that fires. People's own words (annotation, request) need no rest between runs; runs of one
    agent never overlap."""
    training = world.spec.training
    if training is None:
        return TriggerVerdict(waiting="no training is configured")
    running = next((job for job in world.jobs if not job.finished), None)
    if running:
        return TriggerVerdict(waiting=f"{running.name} is running ({running.phase or 'new'})")
    wanted = _asked(world)
    if wanted:
        return TriggerVerdict(wanted)
    rest = _rest(world, last)
    triggers = training.triggers
    try:
        due = _next_time(world, last) if triggers.schedule else None
    except (ValueError, KeyError) as error:
        field = f"spec.training.triggers.schedule: {triggers.schedule!r}"
        return TriggerVerdict(problem=f"{field} never comes: {error}; write five cron fields in UTC, e.g. 0 3 * * *")
    changed = due_change(world)
    routine = _by_episodes(world, last) or _by_clock(world, due, triggers.schedule)
    paused = rest_without_gain(world, last) if routine else None
    fired = (None if paused else routine) or _by_change(changed)
    if paused and not fired:
        waits = [paused.seconds, changed.rest] if changed else [paused.seconds]
        return TriggerVerdict(waiting=paused.sentence, again_after=max(1.0, min(waits)))
    if fired and rest <= 0:
        return TriggerVerdict(fired)
    waits = [rest] if fired else []
    waits += [(due - world.now).total_seconds()] if due and not fired else []
    waits += [changed.rest] if changed and not fired else []
    text = (
        f"the next run starts in {rest:.0f} s (minIntervalSeconds): {fired.sentence}" if fired else _wanted(world, last)
    )
    if changed and not fired:
        text = f"{changed.sentence}, at {stamp(world.now + timedelta(seconds=changed.rest))}: onIntervalSeconds; {text}"
    return TriggerVerdict(waiting=text, again_after=max(1.0, min(waits)) if waits else None)


def rewarded_since(world: AgentSnapshot, last: LastTraining | None) -> int | None:
    """Rewarded episodes since the last run began; counts from 0 again when the data plane's store was emptied."""
    if world.stats is None:
        return None
    base = (last.rewarded or 0) if last else 0
    return world.stats.rewarded - base if world.stats.rewarded >= base else world.stats.rewarded


def _asked(world: AgentSnapshot) -> Trigger | None:
    # An emptied annotation asks for nothing: it could not be told from one that was never obeyed, run after run.
    value = world.annotations.get(ANNOTATION_TRAIN)
    if value and value != world.before.observed_train:
        return Trigger("annotation", f"{ANNOTATION_TRAIN}={value[:300]}")
    request = world.stats.training_request if world.stats else None
    if request is not None and request != world.before.observed_training_request:
        reason = world.stats.training_wish.reason if world.stats and world.stats.training_wish else ""
        return Trigger("request", f"agent.rl.training.request.v1 {request}" + (f": {reason}" if reason else ""))
    return None


def _by_episodes(world: AgentSnapshot, last: LastTraining | None) -> Trigger | None:
    wanted = world.spec.training.triggers.episodes if world.spec.training else None
    have = rewarded_since(world, last)
    if wanted is None or have is None or have < wanted:
        return None
    return Trigger("episodes", f"{have} rewarded episodes, {wanted} wanted")


def _by_change(changed: ChangeVerdict | None) -> Trigger | None:
    return Trigger(changed.kind, changed.sentence) if changed and changed.rest <= 0 else None


def _by_clock(world: AgentSnapshot, due: datetime | None, schedule: str | None) -> Trigger | None:
    return Trigger("schedule", f"{schedule} was due at {due:%Y-%m-%d %H:%M} UTC") if due and due <= world.now else None


def _next_time(world: AgentSnapshot, last: LastTraining | None) -> datetime | None:
    """The first time after the last run (or the agent's creation). However many were missed meanwhile, it is one."""
    created = parse(str(world.object["metadata"].get("creationTimestamp") or ""))
    base = (parse(last.at) if last else None) or created or world.now
    schedule = world.spec.training.triggers.schedule if world.spec.training else None
    if schedule and DRAWN.search(schedule):
        raise ValueError("R and H draw a time by chance")
    result: datetime = croniter(schedule, base.astimezone(UTC)).get_next(datetime)
    return result


def _rest(world: AgentSnapshot, last: LastTraining | None) -> float:
    """Seconds left of the rest after the newest run's end."""
    if last is None or world.spec.training is None:
        return 0.0
    ended = next((job.finished_at for job in reversed(world.jobs) if job.name == last.name), None) or last.at
    return world.spec.training.triggers.min_interval_seconds - seconds_since(ended, world.now)


def _wanted(world: AgentSnapshot, last: LastTraining | None) -> str:
    have, triggers = rewarded_since(world, last), world.spec.training.triggers if world.spec.training else None
    if triggers and triggers.episodes is not None and have is None:
        why = world.stats_problem or "the data plane does not know this agent yet"
        return f"episodes are not counted, of which {triggers.episodes} start the next run: {why}"
    if triggers and triggers.episodes is not None:
        return f"{have} of {triggers.episodes} rewarded episodes for the next run"
    return (
        f"the next run is due by {triggers.schedule}"
        if triggers and triggers.schedule
        else f"`kubectl learnloop train {world.name}` starts the next run"
    )
