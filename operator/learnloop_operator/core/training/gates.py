"""What the evaluation must show before a model may serve anyone. Each gate: one function, one sentence, the numbers."""

from learnloop_api.kinds.evaluation import Gates
from learnloop_api.kinds.training_status import GateResult
from learnloop_api.wire.training import Manifest as Proof
from learnloop_operator.core.training import suite


def evaluate(gates: Gates, proof: Proof) -> list[GateResult]:
    """Verdicts of all gates that are set. No episodes is no evidence: every gate then fails."""
    results = []
    if gates.min_return is not None:
        results.append(min_return(gates.min_return, proof))
    if gates.min_improvement is not None:
        results.append(min_improvement(gates.min_improvement, proof))
    if gates.significant:
        results.append(significant(proof))
    return results + suite.gates(gates.suite or (), proof.suite)


def min_return(bar: float, proof: Proof) -> GateResult:
    """Held-out mean return at least `bar`."""
    mean = proof.evaluation.mean
    return _verdict("minReturn", mean >= bar, proof, f"mean return {mean:.1f}, must be at least {bar:g}")


def min_improvement(bar: float, proof: Proof) -> GateResult:
    """Held-out mean return at least `bar` above the baseline policy's on the same episodes."""
    gain = proof.evaluation.mean - proof.baseline.mean
    sentence = f"{gain:+.1f} against the baseline's {proof.baseline.mean:.1f}, must be at least {bar:+g}"
    return _verdict("minImprovement", gain >= bar, proof, sentence)


def significant(proof: Proof) -> GateResult:
    """Lower end of the 95 % interval above the baseline's mean."""
    low, base = proof.evaluation.ci_low, proof.baseline.mean
    sentence = f"95 % interval begins at {low:.1f}, must be above the baseline's mean {base:.1f}"
    return _verdict("significant", low > base, proof, sentence)


def _verdict(name: str, passed: bool, proof: Proof, sentence: str) -> GateResult:
    episodes = min(proof.evaluation.episodes, proof.baseline.episodes)
    if episodes == 0:
        return GateResult(name=name, passed=False, message="no held-out episodes: no evidence")
    return GateResult(name=name, passed=passed, message=f"{sentence} ({proof.evaluation.episodes} episodes)")
