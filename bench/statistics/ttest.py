"""Specification 004's test as it stands there: `ttest_ind(rewards_a, rewards_b)`, significant at p < 0.05, polled."""

import numpy as np

from bench.statistics.evidence import CANARY_N, CANARY_SUM, STABLE_N, STABLE_SUM, Bools, Floats

Z = 1.959963984540054
"""Two-sided 5 % quantile of the normal distribution."""


def significant(counts: Floats, least: float) -> tuple[Bools, Bools]:
    """For counts [4, rollouts]: whether the test fires, and whether it fires against the canary.

    Student's test with pooled variance; for outcomes 0 and 1 the counts say all of it. `least`: episodes an arm needs.
    """
    n, m = counts[CANARY_N], counts[STABLE_N]
    enough = (n >= least) & (m >= least)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, other = counts[CANARY_SUM] / n, counts[STABLE_SUM] / m
        freedom = n + m - 2.0
        variance = (n * mean * (1.0 - mean) + m * other * (1.0 - other)) / freedom
        t = (mean - other) / np.sqrt(variance * (1.0 / n + 1.0 / m))
        fires = enough & (np.abs(t) > critical(freedom))
    return fires, fires & (mean < other)


def critical(freedom: Floats) -> Floats:
    """The t distribution's two-sided 5 % quantile (Abramowitz, Stegun 26.7.5: within 1e-4 from 30 degrees on)."""
    first = (Z**3 + Z) / 4.0
    second = (5.0 * Z**5 + 16.0 * Z**3 + 3.0 * Z) / 96.0
    third = (3.0 * Z**7 + 19.0 * Z**5 + 17.0 * Z**3 - 15.0 * Z) / 384.0
    return Z + first / freedom + second / freedom**2 + third / freedom**3
