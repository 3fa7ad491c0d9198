"""How much to stake on the next coin, by how the last ones fell. Pure.

A bet multiplies a capital by 1 + stake * outcome. The stake is known before the coin falls, and the outcome has mean
zero or less where the claim is wrong. So the capital is a supermartingale then, and reaches 1/alpha with probability at
most alpha (Ville, 1939). Which stake is taken decides only how fast a true claim is proved: here the one that would
have made the capital of the past outcomes grow fastest (Waudby-Smith and Ramdas, arXiv 2010.09686, section 4).
"""

import math
from dataclasses import dataclass, replace

KEPT = 0.995  # of what is remembered, with each outcome: the last 200 say how good the ranker is now
CAUTION = 10.0
MOST = 0.9  # of the capital may be lost at once


@dataclass(frozen=True)
class Bets:
    """Sum and sum of squares of the outcomes so far, the older the less."""

    won: float = 0.0
    squares: float = 0.0

    @property
    def standing(self) -> float:
        """How many standard errors the outcomes are above zero."""
        return self.won / math.sqrt(self.squares + CAUTION)

    def stake(self, most: float) -> float:
        """What to stake on an outcome whose absolute value is at most `most` > 0; negative: against it."""
        limit = MOST / most
        return max(-limit, min(limit, self.won / (self.squares + CAUTION)))

    def after(self, outcome: float) -> "Bets":
        """With one more."""
        return replace(self, won=KEPT * self.won + outcome, squares=KEPT * self.squares + outcome * outcome)
