"""What is known of an arm in shadow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class ShadowEvidence:
    """Counters of one arm since its shadow step began, summed over its pods."""

    compared: float = 0.0
    agreed: float = 0.0
    errors: float = 0.0
    lost: float = 0.0
    """Copies that never arrived."""
    within: Mapping[float, float] = field(default_factory=dict)
    """Copies answered within each bound in seconds; the bound infinity counts all of them."""
    episodes: float = 0.0
    """Episodes with an importance weight, and the sums over them."""
    weight: float = 0.0
    squares: float = 0.0
    weighted_return: float = 0.0
    squares_return: float = 0.0
    """Sum of squared weight times return; and times its square, None where the servers do not count it yet."""
    squares_squares: float | None = None
    stable_return: float = 0.0
    seen_at: datetime | None = None
    """When the pod that was scraped longest ago was scraped, by Prometheus' clock."""
    gap: int = 0
    """Pods that ran before the step and of which there is no sample from then."""
    broken: str = ""
    """Which of the counters is no number, in half a sentence: then none of them speaks."""

    def interval(self) -> tuple[float, float] | None:
        """The estimate's interval of 95 % by the delta method, value ± 1.96 sqrt(Σ w²(r - value)²) / Σ w
        (Owen, Monte Carlo theory, ch. 9). Asymptotic, and of one look; None where it cannot be told."""
        if self.squares_squares is None or self.weight <= 0.0:
            return None
        value = self.weighted_return / self.weight
        spread = self.squares_squares - 2.0 * value * self.squares_return + value**2 * self.squares
        half = NORMAL_95 * math.sqrt(max(0.0, spread)) / self.weight
        return value - half, value + half

    @property
    def effective(self) -> float:
        """Effective sample size, in episodes (Kong 1992)."""
        return self.weight**2 / self.squares if self.squares > 0.0 else 0.0
