"""Creep: a chain of models, each as little worse than the one before as a rollout allows, is worse without an end.

Ratios and sequential tests compare with stable, which moves with every promotion. The anchor does not move: it is a
figure that somebody wrote, or the first stable arm's own. From it follows a bound, judged as `min` and `max` are
(thresholds.py): what was seen must be within it to pass, and rolls an arm back when it is broken for certain. So the
model that serves was never seen to be worse than the anchor by more than `maxDrop`, however many there were before.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_api.kinds.rollouts.anchor import ANCHORED_TYPES, AnchoredMetric, AnchorFigure
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence, Check, Verdict, hold, lost, number
from learnloop_operator.rollout.metrics.registry import type_of

Figures = tuple[AnchorFigure, ...]


def anchored(analysis: Analysis) -> Iterator[tuple[AnchoredMetric, MetricThreshold]]:
    """What is compared with the anchor, and the metric it is about."""
    by_name = {metric.name: metric for metric in analysis.metrics}
    for asked in analysis.anchor.metrics if analysis.anchor else ():
        metric = by_name.get(asked.name)
        if metric is not None and not metric.dry_run and metric.type in ANCHORED_TYPES:
            yield asked, metric


def kept(analysis: Analysis, figures: Figures) -> Figures:
    """The figures that are still asked for: who takes one out of the specification and puts it back gets a new one."""
    wanted = {(metric.name, metric.type) for asked, metric in anchored(analysis) if asked.value is None}
    found = tuple([figure for figure in figures if (figure.name, figure.type) in wanted])
    return figures if len(found) == len(figures) else found


def taken(analysis: Analysis, figures: Figures, stable: ArmEvidence | None, revision: str, now: datetime) -> Figures:
    """The figures with those that stable has played enough for. One that is there never changes."""
    figures = kept(analysis, figures)
    known = {figure.name for figure in figures}
    if analysis.anchor is None or stable is None or lost(stable.gap, "stable"):
        return figures
    fresh = []
    for asked, metric in anchored(analysis):
        if asked.value is not None or asked.name in known:
            continue
        value, episodes = type_of(metric).value(metric, stable), type_of(metric).spoken(metric, stable)
        if value is not None and math.isfinite(value) and episodes >= analysis.anchor.min_episodes:
            said = {"name": metric.name, "type": metric.type, "revision": revision, "value": value}
            fresh.append(AnchorFigure.model_validate({**said, "episodes": episodes, "at": stamp(now)}))
    return (*figures, *fresh) if fresh else figures


def against_anchor(
    analysis: Analysis,
    figures: Iterable[AnchorFigure],
    subject: ArmEvidence | None,
    reference: ArmEvidence | None,
    alpha: float,
    *,
    subject_is: str,
    reference_is: str,
    waits: bool,
) -> Iterator[Check]:
    """One check for each metric that has an anchor and whose own check has a number.

    `waits`: a step waits for an anchor that is not there yet; the guard ends by its time, whatever is known then.
    """
    by_name = {figure.name: figure for figure in figures}
    for asked, metric in anchored(analysis):
        kind, figure = type_of(metric), by_name.get(asked.name)
        anchor = asked.value if asked.value is not None else figure.value if figure else None
        if anchor is None:
            if waits:
                yield _none_yet(analysis, metric, reference, reference_is)
            continue
        seen = kind.value(metric, subject) if subject else None
        few = subject is None or kind.spoken(metric, subject) < metric.min_episodes
        if few or seen is None or not math.isfinite(seen):
            continue  # the metric's own check waits for it, and says so
        rises = metric.type == "errors"
        limit = anchor + asked.max_drop if rises else anchor - asked.max_drop
        bound = metric.model_copy(
            update={
                "min": None if rises else limit,
                "max": limit if rises else None,
                "min_ratio": None,
                "max_ratio": None,
                "test": "threshold",
                "max_drop": None,
            }
        )
        found = check(bound, subject, None, alpha, subject_is=subject_is)
        whose = f"{number(anchor)} of {figure.revision}" if asked.value is None and figure else number(anchor)
        said = f"anchor {whose}, at most {number(asked.max_drop)} worse"
        fine = found.verdict is Verdict.PASS
        yield replace(found, sentence=f"{metric.name}: within the {said}" if fine else f"{found.sentence}; {said}")


def _none_yet(analysis: Analysis, metric: MetricThreshold, stable: ArmEvidence | None, stable_is: str) -> Check:
    episodes = type_of(metric).spoken(metric, stable) if stable else 0
    needed = analysis.anchor.min_episodes if analysis.anchor else 0
    text = f"{metric.name}: no anchor yet, {stable_is} has {episodes} of {needed} episodes needed"
    return replace(hold(text), of_both=True)
