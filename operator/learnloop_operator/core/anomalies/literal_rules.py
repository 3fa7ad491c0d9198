"""The two rules of specification 004 as they stand there.

They are shown next to our own (`scale_free_rules`) and raise no alarm. The first one is true of every quiet
run whose returns are negative, for half of a negative mean lies above it. The second one compares variances that
overlap, and is true of runs whose returns grow.
"""

from collections.abc import Sequence

DROP = "Sudden performance drop detected"
INSTABILITY = "Training instability detected"
LEAST, NEWEST, BEFORE, WINDOW = 50, 10, 40, 100


def literal_anomalies(returns: Sequence[float]) -> tuple[str, ...]:
    """Result of the specification's `detect_anomalies` for these returns, oldest first, in its own words."""
    result = []
    if len(returns) > LEAST:
        recent = _mean(returns[-NEWEST:])
        if recent < 0.5 * _mean(returns[-NEWEST - BEFORE : -NEWEST]):
            result.append(DROP)
    variances = _variances(returns)
    if variances and variances[-1] > 2.0 * _mean(variances):
        result.append(INSTABILITY)
    return tuple(result)


def _variances(returns: Sequence[float]) -> list[float]:
    """The population variance of each window of 100 returns, from the first that has more than that before it."""
    result, total, squares = [], 0.0, 0.0
    offset = returns[0] if returns else 0.0  # so that squares of large returns do not cancel
    shifted = [value - offset for value in returns]
    for index, value in enumerate(shifted):
        total, squares = total + value, squares + value * value
        if index >= WINDOW:
            gone = shifted[index - WINDOW]
            total, squares = total - gone, squares - gone * gone
            mean = total / WINDOW
            result.append(max(0.0, squares / WINDOW - mean * mean))
    return result


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
