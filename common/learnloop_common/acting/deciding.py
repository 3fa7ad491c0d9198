"""From what a policy's network says of one observation to an action and its log-probability. Plain Python, no state.

For the few actions of a usual policy numpy's overhead per call is several times the work.

- greedy: the best action, by the policy's own account; its log-probability is 0.
- epsilon-greedy, with n actions of which f are forbidden now: with probability epsilon any of the n, each as likely,
  else the best one a*; a forbidden one is replaced by a*. So p(a*) = 1 - epsilon + epsilon (1 + f) / n, and
  p(a) = epsilon / n.
- sampled, choices: softmax(logits / T); forbidden ones have no probability.
- sampled, numbers: u ~ N(mean, (T deviation)^2), a = centre + reach tanh(u), and the log-density of a itself,
  log N(u) - sum log(reach (1 - tanh(u)^2)) (Haarnoja et al., 2018, arXiv 1812.05905, appendix C): it may be above 0.
- sampled, numbers of whom the network says nothing: each uniform within its bounds, the density 1 / (high - low).
- sampled, hybrid: both, independent of each other.
"""

import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from learnloop_api.kinds.behaviour import Behaviour
from learnloop_common.acting.metadata import Numbers

Action = int | list[float]
Uniform = Callable[[], float]
"""A number in [0, 1), another one at each call."""
FORBIDDEN = -1e29
"""Logits at or below this are of actions that a shield forbids: the trainer writes -1e30."""
EDGE = 1.0 - 1e-6
"""A number at its bound has no finite u: it is taken for one a millionth of the reach within."""
LARGEST = 10_000.0
_NORMAL = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class Advice:
    """What the network says of one observation."""

    action: Action  # the greedy one
    logits: Sequence[float] | None = None  # of the choices
    mean: Sequence[float] | None = None  # of the numbers, before tanh; None: they are uniform within their bounds
    deviation: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, the natural log of its probability or density, whether it was drawn, and what it is worth to an
    epsilon-greedy policy, whose logits are values."""

    action: Action
    log_prob: float = 0.0
    drawn: bool = False
    q_value: float | None = None


def decide(behaviour: Behaviour, numbers: Numbers | None, advice: Advice, uniform: Uniform) -> Decision:
    """One action."""
    if behaviour.kind == "greedy":
        return Decision(advice.action)
    action: Action
    if behaviour.kind == "epsilon-greedy":
        action = _any(behaviour.epsilon or 0.0, advice, uniform)
    elif numbers is None:
        action = _choice(behaviour, advice, uniform)
    else:
        choice = [float(_choice(behaviour, advice, uniform))] if numbers.choices else []
        action = [*choice, *_numbers(behaviour, numbers, advice, uniform)]
    found = log_probability(behaviour, numbers, advice, action)
    assert found is not None  # what draws has a distribution
    valued = behaviour.kind == "epsilon-greedy" and isinstance(action, int) and advice.logits is not None
    return Decision(action, found, True, float(_logits(advice)[int(action)]) if valued else None)  # type: ignore[arg-type]


def log_probability(behaviour: Behaviour, numbers: Numbers | None, advice: Advice, action: Action) -> float | None:
    """Natural log of the probability, or the density, of `action`; -inf where it is never taken.

    None where the two cannot be compared: numbers that are not drawn have no density, and actions of another kind none.
    """
    if isinstance(action, int):
        if numbers is not None or not isinstance(advice.action, int):
            return None
        return _log_choice(behaviour, advice, action)
    if numbers is None or behaviour.kind != "sampled" or len(action) != numbers.dimensions:
        return None
    if not numbers.choices:
        return _log_density(behaviour, numbers, advice, action)
    if not action[0].is_integer():
        return None
    return _log_choice(behaviour, advice, int(action[0])) + _log_density(behaviour, numbers, advice, action[1:])


def _logits(advice: Advice) -> Sequence[float]:
    assert advice.logits is not None  # policies that draw choices are refused without, when they are loaded
    return advice.logits


def _any(epsilon: float, advice: Advice, uniform: Uniform) -> int:
    assert isinstance(advice.action, int)
    if uniform() >= epsilon:
        return advice.action
    logits = _logits(advice)
    action = min(int(uniform() * len(logits)), len(logits) - 1)
    return action if logits[action] > FORBIDDEN else advice.action


def _choice(behaviour: Behaviour, advice: Advice, uniform: Uniform) -> int:
    """By inversion of the cumulated distribution."""
    logits, rate = _logits(advice), 1.0 / (behaviour.temperature or 1.0)
    top = max(logits)
    cumulated = list(accumulate(math.exp((logit - top) * rate) for logit in logits))
    action = bisect_right(cumulated, uniform() * cumulated[-1])
    return action if action < len(logits) else logits.index(top)  # by rounding only


def _log_choice(behaviour: Behaviour, advice: Advice, action: int) -> float:
    if behaviour.kind == "greedy":
        return 0.0 if action == advice.action else -math.inf
    logits = _logits(advice)
    if not 0 <= action < len(logits) or (logits[action] <= FORBIDDEN and action != advice.action):
        return -math.inf
    if behaviour.kind == "epsilon-greedy":
        share = (behaviour.epsilon or 0.0) / len(logits)
        if action != advice.action:
            return math.log(share)
        others = sum(1 for other, logit in enumerate(logits) if other != action and logit > FORBIDDEN)
        return math.log1p(-share * others) if share * others < 1.0 else -math.inf
    top, rate = max(logits), 1.0 / (behaviour.temperature or 1.0)
    total = sum(math.exp((logit - top) * rate) for logit in logits)
    return min(0.0, (logits[action] - top) * rate - math.log(total))


def _spread(behaviour: Behaviour, advice: Advice) -> list[tuple[float, float]]:
    """(mean, deviation) of each number before tanh."""
    assert advice.mean is not None
    assert advice.deviation is not None
    rate = behaviour.temperature or 1.0
    return [(mean, deviation * rate) for mean, deviation in zip(advice.mean, advice.deviation, strict=True)]


def _numbers(behaviour: Behaviour, numbers: Numbers, advice: Advice, uniform: Uniform) -> list[float]:
    if advice.mean is None:
        ends = zip(numbers.low, numbers.high, strict=True)
        return [min(max(_float32(low + (high - low) * uniform()), low), high) for low, high in ends]
    action = []
    for (mean, deviation), low, high in zip(_spread(behaviour, advice), numbers.low, numbers.high, strict=True):
        radius = math.sqrt(-2.0 * math.log(1.0 - uniform()))  # Box & Muller (1958)
        drawn = mean + deviation * radius * math.cos(2.0 * math.pi * uniform())
        number = 0.5 * (low + high) + 0.5 * (high - low) * math.tanh(drawn)
        action.append(min(max(_float32(number), low), high))
    return action


def _log_density(behaviour: Behaviour, numbers: Numbers, advice: Advice, action: Sequence[float]) -> float:
    if advice.mean is None:
        ends = list(zip(numbers.low, numbers.high, strict=True))
        if not all(low <= number <= high for number, (low, high) in zip(action, ends, strict=True)):
            return -math.inf
        return -sum(math.log(high - low) for low, high in ends)
    total = 0.0
    for (mean, deviation), low, high, number in zip(
        _spread(behaviour, advice), numbers.low, numbers.high, action, strict=True
    ):
        reach = 0.5 * (high - low)
        squashed = min(max((number - 0.5 * (low + high)) / reach, -EDGE), EDGE)
        error = (math.atanh(squashed) - mean) / deviation
        total -= 0.5 * error * error + math.log(deviation) + _NORMAL + math.log(reach * (1.0 - squashed * squashed))
    return min(max(total, -3e38), LARGEST)


def _float32(number: float) -> float:
    """As environments take it; bounds are float32 themselves."""
    return float(struct.unpack("f", struct.pack("f", number))[0])
