"""What is known of an arm in shadow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


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
    stable_return: float = 0.0
    seen_at: datetime | None = None
    """When the pod that was scraped longest ago was scraped, by Prometheus' clock."""
    broken: str = ""
    """Which of the counters is no number, in half a sentence: then none of them speaks."""

    @property
    def effective(self) -> float:
        """Effective sample size, in episodes (Kong 1992)."""
        return self.weight**2 / self.squares if self.squares > 0.0 else 0.0
