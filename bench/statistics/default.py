"""A rollout whose author wrote no analysis: how often it takes back a model that is as good as the one it replaces.

Every look is at one more episode of the canary. The operator's own `check` judges; it can only speak where a number
lies beyond its bound, so the numbers decide when to ask it. The first such look is what a polled threshold acts on.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import inf
from statistics import median, quantiles

from learnloop_api.kinds.analysis import Analysis
from learnloop_operator.core.rollout.budget import alpha_of_bound
from learnloop_operator.core.rollout.evidence import ArmEvidence, Verdict
from learnloop_operator.core.rollout.thresholds import check
from learnloop_serving.metrics import RETURN_BUCKETS

ASKED = Analysis()
RETURN, ERRORS = ASKED.metrics
ALPHA = alpha_of_bound(ASKED)
WEIGHTS, STEP, GUARDED, MOST = (10, 25, 50, 100), 20, 200, 400
"""The default steps with their episodes, looks at a promoted arm, and at a canary that holds."""
MEANS, ERROR_RATES = (0.5, 0.7, 0.9), (0.005, 0.01, 0.02, 0.03)


@dataclass(slots=True)
class Arm:
    """What was counted: returns are 0 and 1, an episode that ends in error returns what others do."""

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
        low = self.n - self.good
        returns = {bound: float(self.n if bound >= 1.0 else low if bound >= 0.0 else 0) for bound in RETURN_BUCKETS}
        return ArmEvidence(
            self.n, self.good / self.n, error_rate=self.errors / self.n, returns={**returns, inf: float(self.n)}
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a rollout: its end, and whether a polled threshold would have taken it back."""

    rolled_back: bool
    promoted: bool
    polled: bool


def beyond(canary: Arm, stable: Arm) -> bool:
    """Whether a number lies beyond its bound: what a threshold acts on, and where the check is asked."""
    assert RETURN.min_ratio is not None
    assert ERRORS.max is not None
    low = False
    if min(canary.n, stable.n) >= RETURN.min_episodes:
        base = stable.good / stable.n
        low = canary.good / canary.n < base + (RETURN.min_ratio - 1) * base
    return low or (canary.n >= ERRORS.min_episodes and canary.errors / canary.n > ERRORS.max)


def verdicts(canary: Arm, stable: Arm) -> set[Verdict]:
    """What the operator's checks say."""
    one, other = canary.evidence(), stable.evidence()
    return {check(metric, one, other, ALPHA).verdict for metric in (RETURN, ERRORS)}


def rollout(source: random.Random, mean: float, errors: float) -> Ended:
    """Four steps, then the guard; both arms play alike."""
    canary, stable, guarded, polled, promoted = Arm(), Arm(), Arm(), False, False
    for subject in _looks(source, canary, stable, guarded, mean, errors):
        promoted = subject is guarded
        if beyond(subject, stable):
            polled |= True
            if Verdict.BREACH in verdicts(subject, stable):
                return Ended(True, promoted, polled)
    return Ended(False, promoted, polled)


def _looks(source: random.Random, canary: Arm, stable: Arm, guarded: Arm, mean: float, errors: float) -> Iterator[Arm]:
    """The arm that is judged after each of its episodes."""
    step, began = 0, 0
    while step < len(WEIGHTS) and canary.n < MOST:
        canary.play(source, 1, mean, errors)
        stable.play(source, (100 - WEIGHTS[step]) // WEIGHTS[step], mean, errors)
        yield canary
        if canary.n - began >= STEP and not beyond(canary, stable):
            step, began = step + 1, canary.n
    for _ in range(GUARDED if step == len(WEIGHTS) else 0):
        guarded.play(source, 1, mean, errors)
        yield guarded


def agreement(rollouts: int, seed: int) -> int:
    """Looks at which every number within its bounds passes and no other does, by the operator's own code."""
    source, looks = random.Random(seed), 0
    for _ in range(rollouts):
        canary, stable = Arm(), Arm()
        for _ in range(STEP * len(WEIGHTS)):
            canary.play(source, 1, 0.5, 0.03)
            stable.play(source, 3, 0.5, 0.03)
            if min(canary.n, stable.n) >= max(RETURN.min_episodes, ERRORS.min_episodes):
                found = verdicts(canary, stable)
                assert (found == {Verdict.PASS}) != beyond(canary, stable), f"{canary} beside {stable}: {found}"
                looks += 1
    return looks


def episodes_until_breach(source: random.Random, errors: float) -> int:
    """Episodes of a canary that begins to fail with its first one."""
    canary, stable = Arm(), Arm()
    stable.play(source, 9 * STEP, 0.9, 0.0)
    while True:
        canary.play(source, 1, 0.9, errors)
        if beyond(canary, stable) and Verdict.BREACH in verdicts(canary, stable):
            return canary.n


def figures(rollouts: int, others: int) -> dict[str, object]:
    """Identical models behind the analysis that nobody wrote, the same numbers compared as they stand, and `others`
    canaries each of which half or all episodes fail."""
    source, cases = random.Random(11), list(product(MEANS, ERROR_RATES))
    ended = [[rollout(source, *case) for _ in range(-(-rollouts // len(cases)))] for case in cases]
    everything = [one for found in ended for one in found]
    found: dict[str, object] = {
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
        found[f"default_{name}_failing_episodes_p50"] = median(needed)
        found[f"default_{name}_failing_episodes_p95"] = quantiles(needed, n=20)[-1]
    return found


def _share(which: Iterable[bool]) -> float:
    found = list(which)
    return round(sum(found) / len(found), 5)
