"""The rollouts on record, from the times at which each revision's pods were scraped. No I/O.

A revision's pods live exactly as long as its arm, so pods are the evidence. Episodes are not: the pod that draws an
episode counts it, so stable's pods go on counting for a canary that is gone. Pods do not say which of two arms was
stable; that follows from which one goes first. A canary that is rolled back goes before stable; a stable arm that was
replaced goes before its successor.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

LEAVES = 60.0
"""Seconds that a pod may still be seen after its arm was given up: Kubernetes lets it finish for 30."""
BACK = 150.0
"""Seconds after which pods of stable, all of them lost, may be back while a canary goes on."""
MISSED = 2.5
"""Up to this many missing samples in a row are a gap in the record, not an absence."""


@dataclass(frozen=True, slots=True)
class RecordedRollout:
    """One rollout on record: `canary` had pods next to `stable` from `began` to `ended`; so did `guests`, the
    other arms of an experiment. `promoted`: it outlived that stable."""

    canary: str
    stable: str
    began: datetime
    ended: datetime
    guests: frozenset[str] = frozenset()
    promoted: bool = False


@dataclass(frozen=True, slots=True)
class PodSamples:
    """One pod, and when (Unix time, any order) it was scraped. `pod` is empty where the record has no such label."""

    revision: str
    pod: str
    times: Sequence[float]


@dataclass(frozen=True, slots=True)
class PodLifetime:
    """An unbroken time in which the revision had pods; Unix time of the first and the last sample."""

    first: float
    last: float
    revision: str


def recorded(
    pods: Iterable[PodSamples], step: float, births: Mapping[str, float] | None = None
) -> list[RecordedRollout]:
    """Every time a revision appeared next to another one, oldest first.

    `step`: seconds between two moments that were looked at. `births`: when the oldest process of a revision began, of
    those that were there when the record begins; the oldest was stable.
    """
    pods = [pod for pod in pods if pod.times]
    if not pods:
        return []
    gap = MISSED * max(step, _spacing(pods))
    spells = sorted(_spells(pods, gap), key=lambda spell: (spell.first, spell.revision))
    begins, ends = spells[0].first, max(spell.last for spell in spells)
    opening = [spell for spell in spells if spell.first <= begins + gap]
    begun = births or {}
    stable = min(opening, key=lambda spell: (begun.get(spell.revision, spell.first), spell.first)).revision
    rollouts = []
    for spell in spells[len(opening) :]:
        others = [
            one
            for one in spells
            if one.revision != spell.revision and one.first < spell.first and one.last >= spell.first - gap
        ]
        if not others:
            stable = spell.revision
            continue
        if spell.revision == stable and _came_back(spell, spells):
            continue
        stable = _stable(stable, others, spell.first, ends - gap)
        began, ended = (datetime.fromtimestamp(moment, UTC) for moment in (spell.first - step, spell.last))
        promoted = _until(stable, others, spells) < min(spell.last, ends - gap)
        rollouts.append(RecordedRollout(spell.revision, stable, began, ended, promoted=promoted))
    return rollouts


def with_guests(rollouts: Sequence[RecordedRollout], guests: Collection[str]) -> list[RecordedRollout]:
    """The rollouts with their guests: of the revisions `guests`, those that came while a canary was there,
    next to the same stable. A rollout lasts as long as any of its arms."""
    result: list[RecordedRollout] = []
    for one in rollouts:
        last = result[-1] if result else None
        of_last = last and one.canary != last.canary and one.stable == last.stable and one.began <= last.ended
        if last and of_last and one.canary in guests:
            result[-1] = replace(last, ended=max(last.ended, one.ended), guests=last.guests | {one.canary})
        else:
            result.append(one)
    return result


def _stable(before: str, others: Sequence[PodLifetime], at: float, open_end: float) -> str:
    """The stable revision of those with pods at `at`. Pods that end after `open_end` may outlive the record."""
    staying = [one for one in others if one.last > min(at + LEAVES, open_end)]
    candidates = staying or others
    if any(one.revision == before for one in candidates):
        return before
    return max(candidates, key=lambda one: (one.last, -one.first)).revision


def _until(revision: str, others: Sequence[PodLifetime], spells: Sequence[PodLifetime]) -> float:
    """When the arm was gone for good, its short absences aside."""
    last = max(one.last for one in others if one.revision == revision)
    for one in spells:
        if one.revision == revision and last < one.first <= last + BACK:
            last = one.last
    return last


def _came_back(spell: PodLifetime, spells: Sequence[PodLifetime]) -> bool:
    """Whether the pods of a revision were away for a moment only."""
    earlier = [one.last for one in spells if one.revision == spell.revision and one.first < spell.first]
    return bool(earlier) and spell.first - max(earlier) <= BACK


def _spacing(pods: Sequence[PodSamples]) -> float:
    """Seconds between two samples of a pod, typically."""
    each = [later - before for pod in pods for times in (sorted(set(pod.times)),) for before, later in pairwise(times)]
    return median(each) if each else 0.0


def _spells(pods: Sequence[PodSamples], gap: float) -> list[PodLifetime]:
    """Lives of pods joined where one follows the other without a gap, and where no pod at all was scraped in between:
    Prometheus was away."""
    silences = _silences(pods, gap)
    lives: dict[str, list[tuple[float, float]]] = {}
    for pod in pods:
        lives.setdefault(pod.revision, []).extend(_lives(pod, gap))
    lifetimes: list[PodLifetime] = []
    for revision, each in lives.items():
        joined: list[tuple[float, float]] = []
        for first, last in sorted(each):
            if joined and (first - joined[-1][1] <= gap or _silent(joined[-1][1], first, silences, gap)):
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        lifetimes += [PodLifetime(first, last, revision) for first, last in joined]
    return lifetimes


def _lives(pod: PodSamples, gap: float) -> list[tuple[float, float]]:
    """A pod's name is never reused, so it existed between any two of its samples."""
    times = sorted(pod.times)
    if pod.pod:
        return [(times[0], times[-1])]
    lives = [(times[0], times[0])]
    for moment in times[1:]:
        lives[-1:] = [(lives[-1][0], moment)] if moment - lives[-1][1] <= gap else [lives[-1], (moment, moment)]
    return lives


def _silences(pods: Sequence[PodSamples], gap: float) -> list[tuple[float, float]]:
    every = sorted({moment for pod in pods for moment in pod.times})
    return [(before, later) for before, later in pairwise(every) if later - before > gap]


def _silent(last: float, first: float, silences: Sequence[tuple[float, float]], gap: float) -> bool:
    """Whether a silence explains that nothing was seen from `last` to `first`."""
    return any(begun <= last + gap and over >= first - gap for begun, over in silences)
