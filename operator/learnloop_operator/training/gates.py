"""What the evaluation must show before a model may serve anyone. Each gate: one function, one sentence, the numbers."""

import math

from learnloop_api.kinds.training.evaluation import TrainingGates
from learnloop_api.kinds.training.training_status import GateResult
from learnloop_api.wire.training import LEAST_PAIRS, Interval, ReturnEstimate
from learnloop_api.wire.training import Manifest as Proof
from learnloop_common.figures import figure, interval
from learnloop_operator.training import evaluation_suite


def evaluate(gates: TrainingGates, proof: Proof) -> list[GateResult]:
    """Verdicts of all gates that are set. No episodes is no evidence: every gate then fails."""
    results = []
    if gates.min_return is not None:
        results.append(min_return(gates.min_return, proof))
    if gates.min_improvement is not None:
        results.append(min_improvement(gates.min_improvement, proof))
    if gates.significant:
        results.append(significant(proof))
    return results + evaluation_suite.gates(gates.suite or (), proof.suite)


def min_return(bar: float, proof: Proof) -> GateResult:
    """Held-out mean return at least `bar`."""
    if proof.off_policy is not None:
        low = proof.evaluation.ci_low
        sentence = f"estimated return {_interval(proof.evaluation)}, must begin at {bar:g} or above"
        return _verdict("minReturn", low >= bar, proof, sentence)
    mean = proof.evaluation.mean
    return _verdict("minReturn", mean >= bar, proof, f"mean return {figure(mean)}, must be at least {bar:g}")


def min_improvement(bar: float, proof: Proof) -> GateResult:
    """Held-out mean return at least `bar` above the baseline policy's on the same episodes."""
    if proof.off_policy is not None:
        found = proof.difference or _unpaired(proof.evaluation, proof.baseline)
        sentence = f"estimated gain over the log {_gain(found)}, must begin at {bar:+g} or above"
        return _verdict("minImprovement", found.low >= bar, proof, sentence)
    gain = proof.evaluation.mean - proof.baseline.mean
    sentence = (
        f"{figure(gain, sign=True)} against the baseline's {figure(proof.baseline.mean)}, must be at least {bar:+g}"
    )
    return _verdict("minImprovement", gain >= bar, proof, sentence)


def significant(proof: Proof) -> GateResult:
    """Lower end of the 95 % interval of the difference between both means above 0."""
    if proof.off_policy is None and 0 < _episodes(proof) < LEAST_PAIRS:
        fix = f"set evaluation.episodes to at least {LEAST_PAIRS}"
        sentence = f"{_episodes(proof)} episodes show nothing at 95 %: {fix}"
        return GateResult(name="significant", passed=False, message=sentence)
    gain = proof.difference or _unpaired(proof.evaluation, proof.baseline)
    against = "the log, estimated" if proof.off_policy is not None else "the baseline"
    sentence = f"{_gain(gain)} against {against}, must begin above 0"
    return _verdict("significant", gain.low > 0, proof, sentence)


def _unpaired(ours: ReturnEstimate, theirs: ReturnEstimate) -> Interval:
    """The difference of two independent samples, normally distributed: for manifests that have no paired one."""
    widths = [side.ci_high - side.ci_low for side in (ours, theirs)]
    gain, half = ours.mean - theirs.mean, math.hypot(*widths) / 2
    return Interval(value=gain, low=gain - half, high=gain + half)


def _episodes(proof: Proof) -> int:
    return min(proof.evaluation.episodes, proof.baseline.episodes)


def _gain(gain: Interval) -> str:
    return interval(gain.value, gain.low, gain.high, sign=True)


def _interval(value: ReturnEstimate) -> str:
    return interval(value.mean, value.ci_low, value.ci_high)


def _verdict(name: str, passed: bool, proof: Proof, sentence: str) -> GateResult:
    if proof.off_policy is not None and not proof.off_policy.verdict:
        why = f"no verdict from {proof.off_policy.episodes} logged episodes: {proof.off_policy.message}"
        return GateResult(name=name, passed=False, message=why[:1024])
    if _episodes(proof) == 0:
        return GateResult(name=name, passed=False, message="no held-out episodes: no evidence")
    return GateResult(name=name, passed=passed, message=f"{sentence} ({proof.evaluation.episodes} episodes)")
