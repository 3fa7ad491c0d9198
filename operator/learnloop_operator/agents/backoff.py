"""The pause before the next run after several runs in a row without a better model (exponential backoff)."""

from dataclasses import dataclass

from learnloop_api import names
from learnloop_api.kinds.learning_agent import LastTraining
from learnloop_operator.agents.snapshot import AgentSnapshot
from learnloop_operator.core.manifests import revision
from learnloop_operator.core.times import seconds_since

NOTE_WITHOUT_GAIN = f"{names.GROUP}/without-gain"
"""Annotation of a TrainingJob: number of fruitless runs before it, and a digest of what they were asked."""
PATIENCE = 3
FIRST_SECONDS, LONGEST_SECONDS = 600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause: its length and its sentence."""

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


def backoff(world: AgentSnapshot, last: LastTraining | None) -> Pause | None:
    """The pause left after PATIENCE runs without gain; it doubles with each further run."""
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
    return Pause(left, sentence)


def _digest(world: AgentSnapshot) -> str:
    spec = {key: part for key, part in world.spec.to_kube().items() if key != "suspend"}
    return revision({"spec": spec, "policy": world.policy.revision, "code": world.environment_code})
