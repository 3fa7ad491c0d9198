"""A rollout whose author wrote no analysis: how often it rolls back a model that is as good as the one it replaces.

Every look is at one more episode of the canary. The operator's own code compares and judges; its `check` can only
speak where a number lies beyond its bound, so the numbers decide when to ask it. The first look at which a number of
the whole rollout lies beyond it is what a polled threshold acts on. The world may change meanwhile, for both arms.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from statistics import median, quantiles

from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_operator.rollout.checks.against_stable import Comparison, compared
from learnloop_operator.rollout.checks.error_budget import alpha_of_bound
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence, Verdict

SPEC = Analysis()
SUCCESS, ERRORS = SPEC.metrics
ALPHA = alpha_of_bound(SPEC)
WEIGHTS, STEP, GUARDED, MOST = (10, 25, 50, 100), 20, 200, 400
"""The default steps with their episodes, looks at a promoted arm, and at a canary that holds."""
MEANS, ERROR_RATES = (0.5, 0.7, 0.9), (0.005, 0.01, 0.02, 0.03)


World = Callable[[int], float]
"""Factor of the success rate after so many episodes of the subject."""


def steady(_: int) -> float:
    """The world as it is."""
    return 1.0


WORLDS: Mapping[str, World] = {
    "falls_over_steps": lambda n: 1.0 if n < 2 * STEP else 0.5,
    "falls_in_the_guard": lambda n: 1.0 if n < STEP * (len(WEIGHTS) + 1) else 0.7,
    "day": lambda n: 0.7 + 0.3 * math.sin(n / 15.0),
}
"""It falls to half in the middle of the steps, by three tenths in the guard, and goes up and down."""


@dataclass(slots=True)
class Arm:
    """Episodes counted: one that ends in error succeeds as often as others do."""

    n: int = 0
    good: int = 0
    errors: int = 0

    def play(self, source: random.Random, episodes: int, mean: float, errors: float) -> None:
        for _ in range(episodes):
            self.n += 1
            self.good += source.random() < mean
            self.errors += source.random() < errors

    def evidence(self) -> ArmEvidence:
        """As it is read from Prometheus."""
        if not self.n:
            return ArmEvidence()
        return ArmEvidence(self.n, success_rate=self.good / self.n, error_rate=self.errors / self.n)


@dataclass(slots=True)
class Rollout:
    """Both arms, and what the operator remembers of them."""

    canary: Arm = field(default_factory=Arm)
    stable: Arm = field(default_factory=Arm)
    comparisons: tuple[Comparison, ...] = ()
    weight: int = 0

    def look(self) -> None:
        """The operator's look at both."""
        arms = {"canary": self.canary.evidence(), "stable": self.stable.evidence()}
        concurrent = self.weight < 100
        self.comparisons = compared(SPEC, self.comparisons, Evidence(arms), "canary", "stable", concurrent=concurrent)

    @property
    def ratio(self) -> float | None:
        """The canary's success rate to stable's of the same time; None while too few are compared."""
        memory = self.comparisons[0].memory if self.comparisons else None
        enough = memory is not None and memory.judged.canary.n >= SUCCESS.min_episodes and memory.stable_total
        return memory.judged.canary.total / memory.stable_total if memory and enough else None

    def beyond(self) -> bool:
        """Whether a number lies beyond its bound, or is not known yet."""
        assert SUCCESS.min_ratio is not None
        return self.ratio is None or self.ratio < SUCCESS.min_ratio or erring(self.canary)

    def verdicts(self) -> set[Verdict]:
        """The verdicts of the operator's checks."""
        one, other = self.canary.evidence(), self.stable.evidence()
        comparison = self.comparisons[0] if self.comparisons else None
        return {check(metric, one, other, ALPHA, comparison).verdict for metric in (SUCCESS, ERRORS)}


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a rollout: its end, and whether a polled threshold would have rolled it back."""

    rolled_back: bool
    promoted: bool
    polled: bool


def erring(arm: Arm) -> bool:
    """Whether the share of its errors lies beyond its bound."""
    assert ERRORS.max is not None
    return arm.n >= ERRORS.min_episodes and arm.errors / arm.n > ERRORS.max


def pooled(subject: Arm, stable: Arm) -> bool:
    """Whether a number of the whole rollout lies beyond its bound: what a polled threshold acts on."""
    assert SUCCESS.min_ratio is not None
    low = False
    if min(subject.n, stable.n) >= SUCCESS.min_episodes:
        low = subject.good / subject.n < SUCCESS.min_ratio * stable.good / stable.n
    return low or erring(subject)


def rollout(source: random.Random, mean: float, errors: float, world: World = steady) -> Ended:
    """Four steps, then the guard; both arms play alike."""
    result, polled, step, began = Rollout(), False, 0, 0
    while step < len(WEIGHTS) and result.canary.n < MOST:
        result.weight = WEIGHTS[step]
        now = mean * world(result.canary.n)
        result.canary.play(source, 1, now, errors)
        result.stable.play(source, (100 - WEIGHTS[step]) // WEIGHTS[step], now, errors)
        result.look()
        polled |= pooled(result.canary, result.stable)
        beyond = result.beyond()
        if beyond and result.ratio is not None and Verdict.BREACH in result.verdicts():
            return Ended(True, False, polled)
        if result.canary.n - began >= STEP and not beyond:
            step, began = step + 1, result.canary.n
    if step < len(WEIGHTS):
        return Ended(False, False, polled)
    guarded, before = Arm(), result.canary.n
    for _ in range(GUARDED):
        guarded.play(source, 1, mean * world(before + guarded.n), errors)
        polled |= pooled(guarded, result.stable)
        if erring(guarded) and check(ERRORS, guarded.evidence(), None, ALPHA).verdict is Verdict.BREACH:
            return Ended(True, True, polled)
    return Ended(False, True, polled)


def agreement(rollouts: int, seed: int) -> int:
    """Looks at which every number within its bounds passes and no other does, by the operator's own code."""
    source, looks = random.Random(seed), 0
    for _ in range(rollouts):
        model = Rollout(weight=25)
        for _ in range(STEP * len(WEIGHTS)):
            model.canary.play(source, 1, 0.5, 0.03)
            model.stable.play(source, 3, 0.5, 0.03)
            model.look()
            verdicts = model.verdicts()
            if model.ratio is not None and abs(model.ratio - (SUCCESS.min_ratio or 0.0)) < 1e-9:
                continue  # the last bits of a float decide
            assert (verdicts == {Verdict.PASS}) != model.beyond(), f"{model}: {verdicts}"
            looks += 1
    return looks


def drifting(rollouts: int) -> dict[str, object]:
    """Identical models in worlds that change while the rollout lasts, `rollouts` in all."""
    source, cases = random.Random(13), list(product(WORLDS, (0.95, 1.0)))
    each = -(-rollouts // len(cases))
    ended = {(name, mean): [rollout(source, mean, 0.01, WORLDS[name]) for _ in range(each)] for name, mean in cases}
    everything = [one for group in ended.values() for one in group]
    return {
        "drifting_default_rollouts": len(everything),
        "drifting_default_false_rollback_rate": _share(one.rolled_back for one in everything),
        "drifting_default_false_rollback_rate_worst_case": max(
            _share(one.rolled_back for one in group) for group in ended.values()
        ),
        "drifting_default_promoted_rate": _share(one.promoted for one in everything),
        "drifting_polled_threshold_false_rollback_rate": _share(one.polled for one in everything),
    }


def episodes_until_breach(source: random.Random, errors: float, mean: float = 0.9) -> int:
    """Episodes of a canary that begins to fail, or to return less than the 0.9 of stable, with its first one."""
    model = Rollout(weight=10)
    model.stable.play(source, 9 * STEP, 0.9, 0.0)
    while model.canary.n < MOST:
        model.canary.play(source, 1, mean, errors)
        model.stable.play(source, 9, 0.9, 0.0)
        model.look()
        if Verdict.BREACH in model.verdicts():
            return model.canary.n
    return MOST


def figures(rollouts: int, others: int) -> dict[str, object]:
    """Identical models behind the default analysis, the same numbers compared as they stand, and `others`
    canaries each of which half or all episodes fail."""
    source, cases = random.Random(11), list(product(MEANS, ERROR_RATES))
    ended = [[rollout(source, *case) for _ in range(-(-rollouts // len(cases)))] for case in cases]
    everything = [one for group in ended for one in group]
    report: dict[str, object] = {
        "default_rollouts": len(everything),
        "default_mean_returns": list(MEANS),
        "default_error_rates": list(ERROR_RATES),
        "default_false_rollback_rate": _share(one.rolled_back for one in everything),
        "default_false_rollback_rate_worst_case": max(_share(one.rolled_back for one in case) for case in ended),
        "polled_threshold_false_rollback_rate": _share(one.polled for one in everything),
        "default_promoted_rate": _share(one.promoted for one in everything),
        "default_agreement_looks": agreement(40, seed=12),
    }
    for name, errors in (("half", 0.5), ("all", 1.0)):
        needed = [episodes_until_breach(source, errors) for _ in range(others)]
        report[f"default_{name}_failing_episodes_p50"] = median(needed)
        report[f"default_{name}_failing_episodes_p95"] = quantiles(needed, n=20)[-1]
    for name, mean in (("half", 0.45), ("none", 0.0)):
        needed = [episodes_until_breach(source, 0.0, mean) for _ in range(others // 10)]
        report[f"default_{name}_of_the_return_episodes_p50"] = median(needed)
        report[f"default_{name}_of_the_return_episodes_p95"] = quantiles(needed, n=20)[-1]
    return report | drifting(rollouts)


def _share(which: Iterable[bool]) -> float:
    flags = list(which)
    return round(sum(flags) / len(flags), 5)
