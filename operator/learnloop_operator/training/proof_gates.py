"""Checks of a proof: is it a proof, and does the model pass its gates? One function and one sentence each."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from learnloop_api.kinds.training.evaluation import SuiteGate, TrainingGates
from learnloop_api.kinds.training.training_status import GateResult
from learnloop_api.wire.training import (
    LEAST_PAIRS,
    DimensionResult,
    Interval,
    Proof,
    ReturnEstimate,
    SuiteResult,
)
from learnloop_common.untrusted_text import figure, interval
from learnloop_operator.core.artifacts import SCHEME
from learnloop_operator.training.run_snapshot import TrainingSnapshot

INTERVENTIONS = "interventions"
Flaw = tuple[Literal["incomplete", "wrong"], str]


def flaw(snapshot: TrainingSnapshot, proof: Proof) -> Flaw | None:
    """Reason why `proof` proves nothing. incomplete: another attempt may complete it; wrong: no attempt will."""
    if proof.job != snapshot.name:
        return "incomplete", f"the proof is for job {proof.job!r}, not {snapshot.name!r}"
    if snapshot.job is not None and proof.attempts != snapshot.job.attempt + 1:
        return (
            "incomplete",
            f"the proof is of attempt {proof.attempts}, the gang was attempt {snapshot.job.attempt + 1}",
        )
    continuous, order = snapshot.spec.continuous, snapshot.run.update if snapshot.run else None
    if proof.update != (order.number if order else 0):
        return "incomplete", f"the proof is of update {proof.update}, and update {order and order.number} was ordered"
    total = continuous.steps if continuous is not None and proof.update else snapshot.spec.total_steps
    early = bool(proof.update and proof.ended_by_kl) or _patience_ended(snapshot, proof)
    if proof.step < total and not early:
        return "incomplete", f"the proof ends at step {proof.step} of {total}"
    if proof.algorithm != snapshot.spec.algorithm or proof.environment != snapshot.spec.data.world:
        message = f"{proof.algorithm} on {proof.environment}"
        wanted = f"{snapshot.spec.algorithm} on {snapshot.spec.data.world}"
        return "incomplete", f"the proof is of {message}, the spec asks for {wanted}"
    if proof.engine != snapshot.spec.trained_by:
        return "incomplete", f"the proof is of engine {proof.engine}, the spec asks for {snapshot.spec.trained_by}"
    if (proof.off_policy is None) == (snapshot.spec.data.environment is None):
        message, wanted = ("played episodes", "a log") if proof.off_policy is None else ("a log", "played episodes")
        return "incomplete", f"the proof is by {message}, the spec asks for {wanted}"
    requested = snapshot.spec.data.rewards or "environment"
    begun = (snapshot.status.get("lineage") or {}).get("rewardPolicyRevision") if requested == "policy" else None
    begun = order.reward_policy_revision if order is not None else begun
    if (proof.rewards, proof.reward_policy_revision) != (requested, begun):
        message = f"{proof.rewards}, revision {proof.reward_policy_revision}"
        return (
            "incomplete",
            f"the proof is by the rewards of {message}, the run began with {requested}, revision {begun}",
        )
    limited = getattr(snapshot.spec.hyperparameters, "lagrangian_learning_rate", None) is not None
    if limited and all(cost.maximum is None for cost in proof.costs):
        return "incomplete", "the proof has no cost of a constraint, and lagrangianLearningRate learns by some"
    shielded = snapshot.spec.safety is not None and proof.off_policy is None
    if shielded and all(cost.name != INTERVENTIONS for cost in proof.costs):
        return "incomplete", "the proof does not count interventions, and the spec has safety"
    missing = sorted(set(snapshot.spec.export.formats) - {item.format for item in proof.exports})
    if missing:
        return "incomplete", f"the proof has no {missing[0]}, which the spec asks for"
    stored = [("artifact_uri", proof.artifact_uri, proof.artifact_sha256)]
    stored += [(f"uri of the {item.format}", item.uri, item.sha256) for item in proof.exports]
    for field, uri, sha256 in stored:
        if uri != f"{SCHEME}{snapshot.namespace}/{sha256}":
            return (
                "wrong",
                f"{field}: {uri[:200]} is not {SCHEME}{snapshot.namespace}/{sha256[:12]}…: push it to the data plane",
            )
    for what, parity in (("graph", proof.parity), *((item.format, item.parity) for item in proof.exports)):
        if parity.passed:
            continue
        return "wrong", (
            f"the exported {what} differs from the trained network: largest difference "
            f"{parity.max_abs_difference:.2g}, same action on {100 * parity.action_agreement:.2f} % of "
            f"{parity.observations} observations"
        )
    return None


def _patience_ended(snapshot: TrainingSnapshot, proof: Proof) -> bool:
    """True if the spec lets a run end early, and this one reports that it did."""
    wanted, result = snapshot.spec.evaluation.while_training, proof.while_training
    return wanted is not None and wanted.patience is not None and result is not None and result.ended_early


DIGITS = 4
"""Decimals of a figure in a suite_status; the proof has them all."""


def suite_status(suite: SuiteResult) -> dict[str, Any]:
    fields = {
        "overall": None if suite.overall is None else round(suite.overall, DIGITS),
        "improvement": round(suite.improvement.value, DIGITS),
        "dimensions": [_dimension(result) for result in suite.results],
    }
    return {key: value for key, value in fields.items() if value is not None}


def suite_gates(wanted: Sequence[SuiteGate], suite: SuiteResult | None) -> list[GateResult]:
    """One verdict for each bar. A dimension without figures fails its gates."""
    results = {result.dimension: result for result in suite.results} if suite else {}
    return [verdict for gate in wanted for verdict in _suite_verdicts(gate, results.get(gate.dimension))]


def _suite_verdicts(gate: SuiteGate, result: DimensionResult | None) -> list[GateResult]:
    if result is None or result.iqm is None or result.improvement is None:
        why = result.message if result is not None else "the proof does not have it"
        return [GateResult(name=gate.dimension, passed=False, message=f"not measured: {why}"[:1024])]
    verdicts = []
    if gate.min_iqm is not None:
        iqm = result.iqm.value
        sentence = f"interquartile mean {iqm:.1f}, must be at least {gate.min_iqm:g} ({result.episodes} episodes)"
        verdicts.append(GateResult(name=gate.dimension, passed=iqm >= gate.min_iqm, message=sentence))
    if gate.min_improvement is not None:
        chance, bar = result.improvement, gate.min_improvement
        sentence = (
            f"probability of improvement {chance.value:.2f}, 95 % interval begins at {chance.low:.2f}, must be at "
            f"least {bar:g} ({result.episodes} episodes)"
        )
        verdicts.append(GateResult(name=gate.dimension, passed=chance.low >= bar, message=sentence))
    return verdicts


def _dimension(result: DimensionResult) -> dict[str, Any]:
    if result.iqm is None or result.improvement is None:
        return {"dimension": result.dimension, "measured": False, "message": result.message}
    return {
        "dimension": result.dimension,
        "measured": True,
        "iqm": round(result.iqm.value, DIGITS),
        "improvement": round(result.improvement.value, DIGITS),
        "message": _sentence(result, result.iqm, result.improvement)[:1024],
    }


def _sentence(result: DimensionResult, iqm: Interval, chance: Interval) -> str:
    text = f"IQM {_figure(iqm, 1)}"
    if result.baseline is not None:
        text += f" against the serving policy's {_figure(result.baseline, 1)}"
    text += f", better with probability {_figure(chance, 2)}"
    if result.reference is not None:
        text += f"; {result.compared}: {_figure(result.reference, 1)}"
    return f"{text}; {', '.join(result.conditions)}"


def _figure(value: Interval, decimals: int) -> str:
    return f"{value.value:.{decimals}f} [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"


def evaluate(gates: TrainingGates, proof: Proof) -> list[GateResult]:
    """Verdicts of all gates that are set. Without episodes every gate fails."""
    results = []
    if gates.min_return is not None:
        results.append(min_return(gates.min_return, proof))
    if gates.min_improvement is not None:
        results.append(min_improvement(gates.min_improvement, proof))
    if gates.significant:
        results.append(significant(proof))
    return results + suite_gates(gates.suite or (), proof.suite)


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
        result = proof.difference or _unpaired(proof.evaluation, proof.baseline)
        sentence = f"estimated gain over the log {_gain(result)}, must begin at {bar:+g} or above"
        return _verdict("minImprovement", result.low >= bar, proof, sentence)
    gain = proof.evaluation.mean - proof.baseline.mean
    sentence = (
        f"{figure(gain, sign=True)} against the baseline's {figure(proof.baseline.mean)}, must be at least {bar:+g}"
    )
    return _verdict("minImprovement", gain >= bar, proof, sentence)


def significant(proof: Proof) -> GateResult:
    """Lower end of the 95 % interval of the difference between both means above 0."""
    if proof.off_policy is None and 0 < _episodes(proof) < LEAST_PAIRS:
        fix = f"create a new run with evaluation.episodes of at least {LEAST_PAIRS}"
        sentence = f"{_episodes(proof)} episodes show nothing at 95 %: {fix}"
        return GateResult(name="significant", passed=False, message=sentence)
    gain = proof.difference or _unpaired(proof.evaluation, proof.baseline)
    against = "the log, estimated" if proof.off_policy is not None else "the baseline"
    sentence = f"{_gain(gain)} against {against}, must begin above 0"
    return _verdict("significant", gain.low > 0, proof, sentence)


CONSTRAINTS = "constraints"


def constraints(proof: Proof) -> list[GateResult]:
    """The constraints of learned multipliers hold on held-out episodes; nothing where the run has none."""
    limited = [(cost, cost.maximum) for cost in proof.costs if cost.maximum is not None]
    broken = [(cost, maximum) for cost, maximum in limited if cost.mean > maximum]
    sentences = [
        f"{cost.name} {interval(cost.mean, cost.ci_low, cost.ci_high)}, must be at most {maximum:g} "
        f"({cost.episodes} episodes, baseline {figure(cost.baseline)})"
        for cost, maximum in broken or limited
    ]
    if not limited:
        return []
    return [GateResult(name=CONSTRAINTS, passed=not broken, message="; ".join(sentences)[:1024])]


MAX_KL = "maxKl"


NEW = "new"


def new(before: Sequence[str | None], proof: Proof) -> list[GateResult]:
    """A refusal of an update that made an artifact `before` it once more: other episodes may not pass it by chance."""
    if not proof.update or proof.artifact_sha256 not in before:
        return []
    sentence = f"artifact {proof.artifact_sha256[:12]} serves already, or was refused: it is not judged again"
    return [GateResult(name=NEW, passed=False, message=sentence)]


def max_kl(bar: float, kl: float | None) -> GateResult:
    """An update no further than `bar` from the policy that serves."""
    if kl is None:
        problem = "not measured: the policy that serves does not draw its actions, as the update does"
        fix = "create a new run with that one's behaviour as export.behaviour, or remove continuous"
        return GateResult(name=MAX_KL, passed=False, message=f"{problem}; {fix}")
    sentence = f"KL divergence {kl:.3g} from the policy that serves, must be at most {bar:g}"
    return GateResult(name=MAX_KL, passed=kl <= bar, message=sentence)


def _unpaired(ours: ReturnEstimate, others: ReturnEstimate) -> Interval:
    """The difference of two independent samples, normally distributed: for proofs that have no paired one."""
    widths = [side.ci_high - side.ci_low for side in (ours, others)]
    gain, half = ours.mean - others.mean, math.hypot(*widths) / 2
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
