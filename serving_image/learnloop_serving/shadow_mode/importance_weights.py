"""What would the policy in shadow have earned? Importance weights of the episodes that stable played.

An episode's weight is the product over its steps of (probability of the action taken under the policy in shadow) /
(probability under stable), cut off at `CLIP`. The operator divides sums over all pods: the self-normalised estimate is
sum(w * return) / sum(w), its effective sample size (sum w)^2 / sum(w^2).

- Precup, Sutton, Singh: Eligibility traces for off-policy policy evaluation, ICML 2000: weighted importance sampling.
- Ionides: Truncated importance sampling, J. Comput. Graph. Stat. 17(2), 2008: the cut; a small bias towards stable
  for a bounded variance.
- Kong: A note on importance sampling using standardized weights, Univ. of Chicago TR 348, 1992: the effective size.
- Swaminathan, Joachims: The self-normalized estimator for counterfactual learning, NIPS 2015.

Episodes that give no weight are counted and left out: an unfinished one, and parts of one (a copy was lost, or another
pod got it). So is one with a step that stable did not draw: its other actions had probability 0, so nothing can be said
of them. An action that the policy in shadow never takes makes the weight 0.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

CLIP = 20.0
REMEMBERED = 4_096
Use = Literal["counted", "incomplete", "deterministic", "unfinished"]


@dataclass(slots=True)
class _Played:
    steps: int = 0
    log_ratio: float = 0.0
    drawn: bool = True


class OffPolicyWeights:
    """Weights of the episodes that are being played; bounded, the oldest is forgotten first."""

    def __init__(self) -> None:
        self._episodes: OrderedDict[str, _Played] = OrderedDict()

    def step(self, episode_id: str, log_prob: float | None, shadow_log_prob: float | None) -> None:
        """One action of an episode: its log-probabilities under stable and in shadow; None where it was not drawn."""
        played = self._episodes.get(episode_id)
        if played is None:
            played = self._episodes[episode_id] = _Played()
            if len(self._episodes) > REMEMBERED:
                self._episodes.popitem(last=False)
        played.steps += 1
        if log_prob is None or shadow_log_prob is None:
            played.drawn = False
        else:
            played.log_ratio += shadow_log_prob - log_prob

    def end(self, episode_id: str, completed: bool, length: int) -> tuple[Use, float]:
        """What the episode is good for, and its weight (0 unless it counts)."""
        played = self._episodes.pop(episode_id, None)
        if played is None or played.steps != length or not length:
            return "incomplete", 0.0
        if not completed:
            return "unfinished", 0.0
        if not played.drawn:
            return "deterministic", 0.0
        return "counted", min(CLIP, math.exp(min(played.log_ratio, 50.0)))
