"""Triggers of training: a person, a request, episodes, the clock; and the pause after runs in a row without gain."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from croniter import croniter

from learnloop_api import names
from learnloop_api.kinds.learning_agent import LastTraining
from learnloop_operator.agents import continuous
from learnloop_operator.agents.agent_snapshot import AgentSnapshot
from learnloop_operator.core import plan, times

DRAWN = re.compile(r"(?i)(^|\s)[rh]")
"""croniter's own additions: no two looks would agree on the next time."""


BY_A_PERSON = "annotation"
"""The trigger of a run that `kubectl learnloop train` asked for."""


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


def evaluate(snapshot: AgentSnapshot, last: LastTraining | None) -> TriggerVerdict:
    """The first trigger that fires. Orders and requests need no rest between runs; runs of one agent never
    overlap. Only a person's order ends a freeze, or a canary without a verdict."""
    training = snapshot.spec.training
    if training is None:
        return TriggerVerdict(waiting="no training is configured")
    running = next((job for job in snapshot.jobs if not (job.finished or job.rests)), None)
    if running:
        return TriggerVerdict(waiting=f"{running.name} is running ({running.phase or 'new'})")
    wanted, freeze = _by_request(snapshot), continuous.frozen(snapshot)
    if wanted and wanted.kind == BY_A_PERSON:
        return TriggerVerdict(wanted)
    if freeze:
        return TriggerVerdict(waiting=f"frozen: {freeze[1]}; `kubectl learnloop train {snapshot.name}` goes on")
    if trial := continuous.on_trial(snapshot):
        return TriggerVerdict(waiting=trial)
    if wanted:
        return TriggerVerdict(wanted)
    rest = _rest(snapshot, last)
    triggers = training.triggers
    try:
        due = _next_time(snapshot, last) if triggers.schedule else None
    except (ValueError, KeyError) as error:
        field = f"spec.training.triggers.schedule: {triggers.schedule!r}"
        return TriggerVerdict(problem=f"{field} never comes: {error}; write five cron fields in UTC, e.g. 0 3 * * *")
    fired = _by_episodes(snapshot, last) or _by_clock(snapshot, due, triggers.schedule)
    paused = backoff(snapshot, last) if fired else None
    if paused:
        return paused
    if fired and rest <= 0:
        return TriggerVerdict(fired)
    if fired:
        text = f"the next run starts in {rest:.0f} s (minIntervalSeconds): {fired.sentence}"
        return TriggerVerdict(waiting=text, again_after=max(1.0, rest))
    again = max(1.0, (due - snapshot.now).total_seconds()) if due else None
    return TriggerVerdict(waiting=_wanted(snapshot, last), again_after=again)


def rewarded_since(snapshot: AgentSnapshot, last: LastTraining | None) -> int | None:
    """Rewarded episodes since the last run began; counts from 0 again when the data plane's store was emptied."""
    if snapshot.stats is None:
        return None
    base = (last.rewarded or 0) if last else 0
    return snapshot.stats.rewarded - base if snapshot.stats.rewarded >= base else snapshot.stats.rewarded


def _by_request(snapshot: AgentSnapshot) -> Trigger | None:
    # An emptied annotation asks for nothing: it could not be told from one that was never obeyed, run after run.
    value = snapshot.annotations.get(names.ANNOTATION_TRAIN)
    if value and value != snapshot.before.observed_train:
        return Trigger(BY_A_PERSON, f"{names.ANNOTATION_TRAIN}={value[:300]}")
    request = snapshot.stats.training_request if snapshot.stats else None
    if request is not None and request != snapshot.before.observed_training_request:
        reason = snapshot.stats.training_wish.reason if snapshot.stats and snapshot.stats.training_wish else ""
        return Trigger("request", f"agent.rl.training.request.v1 {request}" + (f": {reason}" if reason else ""))
    return None


def _by_episodes(snapshot: AgentSnapshot, last: LastTraining | None) -> Trigger | None:
    wanted = snapshot.spec.training.triggers.episodes if snapshot.spec.training else None
    have = rewarded_since(snapshot, last)
    if wanted is None or have is None or have < wanted:
        return None
    return Trigger("episodes", f"{have} rewarded episodes, {wanted} wanted")


def _by_clock(snapshot: AgentSnapshot, due: datetime | None, schedule: str | None) -> Trigger | None:
    return (
        Trigger("schedule", f"{schedule} was due at {due:%Y-%m-%d %H:%M} UTC") if due and due <= snapshot.now else None
    )


def _next_time(snapshot: AgentSnapshot, last: LastTraining | None) -> datetime | None:
    """The first time after the last run (or the agent's creation). However many were missed meanwhile, it is one."""
    created = times.parse(str(snapshot.object["metadata"].get("creationTimestamp") or ""))
    base = (times.parse(last.at) if last else None) or created or snapshot.now
    schedule = snapshot.spec.training.triggers.schedule if snapshot.spec.training else None
    if schedule and DRAWN.search(schedule):
        raise ValueError("R and H draw a time by chance")
    result: datetime = croniter(schedule, base.astimezone(UTC)).get_next(datetime)
    return result


def _rest(snapshot: AgentSnapshot, last: LastTraining | None) -> float:
    """Seconds left of the rest after the newest run's end."""
    if last is None or snapshot.spec.training is None:
        return 0.0
    ended = next((job.finished_at for job in reversed(snapshot.jobs) if job.name == last.name), None) or last.at
    return snapshot.spec.training.triggers.min_interval_seconds - times.seconds_since(ended, snapshot.now)


def _wanted(snapshot: AgentSnapshot, last: LastTraining | None) -> str:
    have, triggers = rewarded_since(snapshot, last), snapshot.spec.training.triggers if snapshot.spec.training else None
    if triggers and triggers.episodes is not None and have is None:
        why = snapshot.stats_problem or "the data plane does not know this agent yet"
        return f"episodes are not counted, of which {triggers.episodes} start the next run: {why}"
    if triggers and triggers.episodes is not None:
        return f"{have} of {triggers.episodes} rewarded episodes for the next run"
    return (
        f"the next run is due by {triggers.schedule}"
        if triggers and triggers.schedule
        else f"`kubectl learnloop train {snapshot.name}` starts the next run"
    )


NOTE_WITHOUT_GAIN = f"{names.GROUP}/without-gain"
"""Annotation of a TrainingJob: number of fruitless runs before it, and a digest of what they were asked."""
PATIENCE = 3
FIRST_SECONDS, LONGEST_SECONDS = 600.0, 86_400.0


def note_without_gain(snapshot: AgentSnapshot) -> str:
    return f"{without_gain(snapshot)}/{_digest(snapshot)}"


def without_gain(snapshot: AgentSnapshot) -> int:
    """Number of newest runs in a row that ended without a validated model, under this spec, policy and environment."""
    newest = next((job for job in reversed(snapshot.jobs) if job.finished or job.rests), None)
    if newest is None or newest.phase == "Validated":
        return 0
    count, _, digest = (newest.notes or {}).get(NOTE_WITHOUT_GAIN, "").partition("/")
    return int(count) + 1 if digest == _digest(snapshot) and count.isdecimal() and len(count) < 7 else 0


def backoff(snapshot: AgentSnapshot, last: LastTraining | None) -> TriggerVerdict | None:
    """The pause left after PATIENCE runs without gain; it doubles with each further run."""
    count = without_gain(snapshot)
    if count < PATIENCE or last is None:
        return None
    ended = next((job.finished_at for job in reversed(snapshot.jobs) if job.finished_at), None) or last.at
    pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(count - PATIENCE, 20))
    left = pause - times.seconds_since(ended, snapshot.now)
    if left <= 0:
        return None
    waiting = (
        f"{count} runs in a row brought no better model: the next one begins in {left:.0f} s, after a change of the "
        "spec, environment code or reward policy, or when asked"
    )
    return TriggerVerdict(waiting=waiting, again_after=max(1.0, left))


def _digest(snapshot: AgentSnapshot) -> str:
    spec = {key: part for key, part in snapshot.spec.to_kube().items() if key != "suspend"}
    return plan.revision({"spec": spec, "policy": snapshot.policy.revision, "code": snapshot.environment_code})
