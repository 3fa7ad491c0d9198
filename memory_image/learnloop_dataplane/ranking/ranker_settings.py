"""The numbers by which the learned ranker learns, bets and forgets: each a choice, none learned."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RankerSettings:
    """How fast the ranker learns, and what must be shown before it is used. `SETTINGS` are in force."""

    label_rate: float = 0.05
    """Length of a label's step for the weights, of its gradient."""
    longest_gradient: float = 3.0
    """A label's gradient that is longer is cut to this length."""
    pull_to_static: float = 0.002
    """Share of the way back to the static weights with each label: what no feedback speaks about stays as it was."""
    largest_weight: float = 3.0
    """Of a weight, in absolute value."""
    label_stake: float = 0.3
    """Share of the capital that a label's bet stakes for a gain of one in nDCG."""
    proof: float = math.log(100.0)
    """Log of the capital that bets must have won before the ranker is used, or before it is taken out of use."""
    least_feedbacks: int = 30
    """Labels and rewards before it may be used at all."""
    prior_deviation: float = 0.5
    """Standard deviation of what a weight may be, around the static one, before any reward."""
    effect: float = 0.1
    """Of one memory whose score is higher by one, in standard deviations of the reward."""
    weights_forgotten: float = 0.001
    """Share of what rewards taught about the weights that each reward takes away."""
    usual_rewards: int = 50
    """The last so many rewards say what is usual."""
    widest_surprise: float = 2.0
    """Standard deviations from the usual reward that count as much as any more."""
    rounding: float = 1e-6
    """Rewards that differ by less, relative to their mean, do not differ."""
    prior_expectation_variance: float = 0.2
    """Of each coefficient of what to expect of an answer, before any reward."""
    expectation_forgotten: float = 0.005
    """Share of what rewards taught about what to expect of an answer that each reward takes away."""
    largest_expectation: float = 0.7
    """Of an answer's advantage before its coins fall, in absolute value."""


SETTINGS = RankerSettings()
