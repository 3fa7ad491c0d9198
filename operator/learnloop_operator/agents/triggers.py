"""Triggers of training: a person, a request, episodes, the clock; and the pause after runs in a row without gain."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from croniter import croniter

from learnloop_api import names
from learnloop_api.kinds.learning_agent import LastTraining
from learnloop_operator.agents.agent_snapshot import AgentSnapshot
from learnloop_operator.core.manifest_parts import revision
from learnloop_operator.core.times import parse, seconds_since

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
    fired = _by_episodes(world, last) or _by_clock(world, due, triggers.schedule)
    paused = backoff(world, last) if fired else None
    if paused:
        return paused
    if fired and rest <= 0:
        return TriggerVerdict(fired)
    if fired:
        text = f"the next run starts in {rest:.0f} s (minIntervalSeconds): {fired.sentence}"
        return TriggerVerdict(waiting=text, again_after=max(1.0, rest))
    again = max(1.0, (due - world.now).total_seconds()) if due else None
    return TriggerVerdict(waiting=_wanted(world, last), again_after=again)


def rewarded_since(world: AgentSnapshot, last: LastTraining | None) -> int | None:
    """Rewarded episodes since the last run began; counts from 0 again when the data plane's store was emptied."""
    if world.stats is None:
        return None
    base = (last.rewarded or 0) if last else 0
    return world.stats.rewarded - base if world.stats.rewarded >= base else world.stats.rewarded


def _asked(world: AgentSnapshot) -> Trigger | None:
    # An emptied annotation asks for nothing: it could not be told from one that was never obeyed, run after run.
    value = world.annotations.get(names.ANNOTATION_TRAIN)
    if value and value != world.before.observed_train:
        return Trigger("annotation", f"{names.ANNOTATION_TRAIN}={value[:300]}")
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


NOTE_WITHOUT_GAIN = f"{names.GROUP}/without-gain"
"""Annotation of a TrainingJob: number of fruitless runs before it, and a digest of what they were asked."""
PATIENCE = 3
FIRST_SECONDS, LONGEST_SECONDS = 600.0, 86_400.0


def note_without_gain(world: AgentSnapshot) -> str:
    return f"{without_gain(world)}/{_digest(world)}"


def without_gain(world: AgentSnapshot) -> int:
    """Number of newest runs in a row that ended without a validated model, under this spec, policy and environment."""
    newest = next((job for job in reversed(world.jobs) if job.finished), None)
    if newest is None or newest.phase == "Validated":
        return 0
    count, _, digest = (newest.notes or {}).get(NOTE_WITHOUT_GAIN, "").partition("/")
    return int(count) + 1 if digest == _digest(world) and count.isdecimal() and len(count) < 7 else 0


def backoff(world: AgentSnapshot, last: LastTraining | None) -> TriggerVerdict | None:
    """The pause left after PATIENCE runs without gain; it doubles with each further run."""
    count = without_gain(world)
    if count < PATIENCE or last is None:
        return None
    ended = next((job.finished_at for job in reversed(world.jobs) if job.finished_at), None) or last.at
    pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(count - PATIENCE, 20))
    left = pause - seconds_since(ended, world.now)
    if left <= 0:
        return None
    waiting = (
        f"{count} runs in a row brought no better model: the next one begins in {left:.0f} s, after a change of the "
        "spec, environment code or reward policy, or when asked"
    )
    return TriggerVerdict(waiting=waiting, again_after=max(1.0, left))


def _digest(world: AgentSnapshot) -> str:
    spec = {key: part for key, part in world.spec.to_kube().items() if key != "suspend"}
    return revision({"spec": spec, "policy": world.policy.revision, "code": world.environment_code})
