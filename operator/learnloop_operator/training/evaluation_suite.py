"""The evaluation suite in a status, and what its gates make of it."""

from collections.abc import Sequence
from typing import Any

from learnloop_api.kinds.training.evaluation_suite import SuiteGate
from learnloop_api.kinds.training.training_status import GateResult
from learnloop_api.wire.training import DimensionResult, Interval, SuiteResult

DIGITS = 4
"""Decimals of a figure in a status; the manifest has them all."""


def status(found: SuiteResult) -> dict[str, Any]:
    """SuiteStatus of a wire result."""
    fields = {
        "overall": None if found.overall is None else round(found.overall, DIGITS),
        "improvement": round(found.improvement.value, DIGITS),
        "dimensions": [_dimension(result) for result in found.results],
    }
    return {key: value for key, value in fields.items() if value is not None}


def gates(wanted: Sequence[SuiteGate], found: SuiteResult | None) -> list[GateResult]:
    """One verdict for each bar. A dimension without figures is no evidence: its gates fail."""
    results = {result.dimension: result for result in found.results} if found else {}
    return [verdict for gate in wanted for verdict in _verdicts(gate, results.get(gate.dimension))]


def _verdicts(gate: SuiteGate, result: DimensionResult | None) -> list[GateResult]:
    if result is None or result.iqm is None or result.improvement is None:
        why = result.message if result is not None else "the manifest does not have it"
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
