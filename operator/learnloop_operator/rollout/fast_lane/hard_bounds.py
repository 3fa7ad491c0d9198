"""The hard bounds that the fast lane asks of an arm's own counters.

It asks min and max of the analysis and the share of failing requests; of an arm in shadow, the bars of its step. It
compares nothing with stable: a bound needs one arm.
"""

import math
from collections.abc import Iterable, Iterator

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_api.kinds.rollouts.shadow import ShadowCheck
from learnloop_operator.rollout.checks.shadow_checks import SLOW_SHARE
from learnloop_operator.rollout.evidence.arm_evidence import number
from learnloop_operator.rollout.evidence.pod_counters import (
    AGREED,
    COMPARED,
    COPIES_FAILED,
    COPIES_WITHIN,
    FAILED,
    REQUESTS,
    Counters,
    within,
)
from learnloop_operator.rollout.fast_lane.breach_alarms import Questions
from learnloop_operator.rollout.metrics.hard_bound import HardBound, too_slow
from learnloop_operator.rollout.metrics.latency import GROSSLY_SLOW_SHARE
from learnloop_operator.rollout.metrics.registry import type_of
from learnloop_operator.statistics.alarm import Alarm
from learnloop_operator.statistics.betting import Counts

BUDGET = 0.1
"""Share of analysis.alpha that all bounds of a rollout, or of all arms of an
experiment, may err with together, beside the sequential tests' alpha."""


FEWEST_FAILURES = 5
"""Requests must have failed so often before that rolls an arm back: a server counts one for each episode, so that it
takes as many episodes, drawn by the weights."""


class FailedRequests(HardBound):
    """maxRequestErrors of the fast lane."""

    __slots__ = ()
    kind = "requests"
    fewest_bad = FEWEST_FAILURES

    def bad(self, tally: Counters) -> Counts:
        """Requests for an action that failed."""
        return Counts(tally.get(REQUESTS, 0.0), tally.get(FAILED, 0.0))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`0.5 of the requests to the canary failed; bar at most 0.05`."""
        return _failed(self, alarm, f"requests to {subject_is}")


class FailedCopies(HardBound):
    """maxErrorRate of a shadow step."""

    __slots__ = ()
    kind = "copies failed"

    def bad(self, tally: Counters) -> Counts:
        """Copies that the policy failed on."""
        failed = tally.get(COPIES_FAILED, 0.0)
        return Counts(tally.get(COMPARED, 0.0) + failed, failed)

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`0.5 of the copies of requests to the canary failed; bar at most 0.05`."""
        return _failed(self, alarm, f"copies of requests to {subject_is}")


class SlowCopies(HardBound):
    """maxLatencySeconds of a shadow step."""

    __slots__ = ()
    kind = "copies latency"
    together = True

    def bad(self, tally: Counters) -> Counts | None:
        """Copies that took longer."""
        return too_slow(within(tally, self.limit, COPIES_WITHIN), tally.get(f"{COPIES_WITHIN}inf", 0.0))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`0.5 of the copies of requests to the canary took longer than 0.1 s; bar at most 0.11`."""
        n, bad = alarm.recent.n, alarm.recent.total
        copies = f"{number(bad / n)} of the copies of requests to {subject_is}"
        return f"{copies} took longer than {number(self.limit)} s; bar at most {number(self.share)}"


class Disagreement(HardBound):
    """minAgreement of a shadow step."""

    __slots__ = ()
    kind = "agreement"

    def bad(self, tally: Counters) -> Counts:
        """Copies that were answered with another action than stable's."""
        compared = tally.get(COMPARED, 0.0)
        return Counts(compared, compared - tally.get(AGREED, 0.0))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`the canary agrees with stable on 0.4 of the copies of requests; bar at least 0.9`."""
        n, bad = alarm.recent.n, alarm.recent.total
        agreed = f"{subject_is} agrees with stable on {number(1.0 - bad / n)} of the copies of requests"
        return f"{agreed}; bar at least {number(self.limit)}"


def of_episodes(spec: ModelDeploymentSpec, weight: int, arms: int = 1) -> Questions:
    """Of each of `arms` arms on trial that gets `weight` percent of the episodes."""
    return _asked(spec, _distinct(of_analysis(spec.analysis)), arms, weight > 0)


def of_copies(spec: ModelDeploymentSpec, bars: ShadowCheck) -> Questions:
    """Of an arm in shadow."""
    return _asked(spec, _distinct(_of_shadow(bars)), 1, True)


def of_analysis(analysis: Analysis) -> Iterator[HardBound]:
    """Every hard bound of the analysis that one arm's counters can break."""
    errors = analysis.fast_lane.max_request_errors
    yield FailedRequests(errors, False, errors)
    for metric in analysis.metrics:
        if not metric.dry_run:
            yield from type_of(metric).hard_bounds(metric)


def _asked(spec: ModelDeploymentSpec, bounds: tuple[HardBound, ...], arms: int, exposed: bool) -> Questions:
    """A rollout's shadow steps and its other steps share the budget, and so do the arms of an experiment."""
    shadows = [bound for step in spec.rollout.steps if step.shadow for bound in _of_shadow(step.shadow)]
    claims = len(_distinct((*of_analysis(spec.analysis), *shadows)))
    return Questions(bounds, math.log(max(1, claims * arms) / (BUDGET * spec.analysis.alpha)), exposed)


def _distinct(bounds: Iterable[HardBound]) -> tuple[HardBound, ...]:
    """Those that can be broken, each claim once."""
    return tuple({bound.claim: bound for bound in bounds if 0.0 <= bound.share < 1.0}.values())


def _of_shadow(bars: ShadowCheck) -> Iterator[HardBound]:
    yield FailedCopies(bars.max_error_rate, False, bars.max_error_rate)
    if bars.max_latency_seconds is not None:
        yield SlowCopies(bars.max_latency_seconds, False, SLOW_SHARE + GROSSLY_SLOW_SHARE)
    if bars.min_agreement is not None:
        yield Disagreement(bars.min_agreement, True, 1.0 - bars.min_agreement)


def _failed(bound: HardBound, alarm: Alarm, what: str) -> str:
    n, bad = alarm.recent.n, alarm.recent.total
    return f"{number(bad / n)} of the {what} failed; bar at most {number(bound.limit)}"
