"""Policies: the metadata of their files, what a network advises, and the action that the behaviour draws from it."""

import base64
import json
import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic_core import from_json

from learnloop_api.kinds.behaviour import GREEDY, Behaviour, usual
from learnloop_api.wire.base import LARGEST

BEHAVIOUR, BOUNDS, ALGORITHM = "learnloop.behaviour", "learnloop.bounds", "learnloop.algorithm"
LONGEST = 4_000_000  # characters of an entry
MOST_NUMBERS = 65_536


@dataclass(frozen=True, slots=True)
class Numbers:
    """Bounds of the numbers of an action; the choice before them, of `choices`, is not among them."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    choices: int = 0

    @property
    def dimensions(self) -> int:
        """How many numbers make an action, a choice included."""
        return len(self.low) + bool(self.choices)

    def written(self) -> str:
        return json.dumps({"low": self.low, "high": self.high, "choices": self.choices})


def behaviour_of(metadata: Mapping[str, str], *, continuous: bool) -> Behaviour:
    """How the policy acts; raises ValueError naming the entry. A file without the entry acts as is `usual`."""
    text = metadata.get(BEHAVIOUR)
    if text is None:
        return usual(metadata.get(ALGORITHM, ""), continuous=continuous)
    result = _object(BEHAVIOUR, text)
    if unknown := sorted(set(result) - set(Behaviour.model_fields)):
        raise ValueError(f"metadata {BEHAVIOUR}: {unknown[0]!r} is unknown: update this image, or export it again")
    try:
        read = Behaviour.model_validate(result)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "behaviour"
        raise ValueError(f"metadata {BEHAVIOUR}: {field}: {first['msg']}") from None
    if (read.epsilon is None) == (read.kind == "epsilon-greedy"):
        raise ValueError(f"metadata {BEHAVIOUR}: epsilon goes with kind epsilon-greedy, which needs it")
    if read.temperature is not None and read.kind != "sampled":
        raise ValueError(f"metadata {BEHAVIOUR}: temperature goes with kind sampled")
    if continuous and read.kind == "epsilon-greedy":
        raise ValueError(f"metadata {BEHAVIOUR}: epsilon-greedy needs discrete actions, these are numbers")
    return read


def numbers_of(metadata: Mapping[str, str]) -> Numbers | None:
    """Bounds of the numbers; None where the file does not say them. Raises ValueError naming the entry."""
    text = metadata.get(BOUNDS)
    if text is None:
        return None
    result = _object(BOUNDS, text)
    low, high, choices = _finite(result.get("low")), _finite(result.get("high")), result.get("choices")
    if low is None or high is None or len(low) != len(high):
        raise ValueError(f"metadata {BOUNDS}: low and high must be lists of as many finite numbers")
    if not all(least < most for least, most in zip(low, high, strict=True)):
        raise ValueError(f"metadata {BOUNDS}: every low must be below its high")
    if not isinstance(choices, int) or isinstance(choices, bool) or not 0 <= choices <= MOST_NUMBERS:
        raise ValueError(f"metadata {BOUNDS}: choices must be a whole number from 0 to {MOST_NUMBERS}")
    return Numbers(low, high, choices)


def _object(entry: str, text: str) -> dict[str, object]:
    try:
        result = from_json(text) if len(text) <= LONGEST else None  # unlike json, bounded in its recursion
    except ValueError:
        result = None
    if not isinstance(result, dict):
        raise ValueError(f"metadata {entry}: {text[:80]!r} is not a JSON object")
    return result


def _finite(values: object) -> tuple[float, ...] | None:
    if not isinstance(values, list) or len(values) > MOST_NUMBERS:
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    result = tuple(float(value) for value in values if abs(value) <= LARGEST)
    return result if len(result) == len(values) else None


Action = int | list[float]
Uniform = Callable[[], float]
"""A number in [0, 1), another one at each call."""
FORBIDDEN = -1e29
"""Logits at or below this are of actions that a shield forbids: the trainer writes -1e30."""
EDGE = 1.0 - 1e-6
"""A number at its bound has no finite u: it is taken for one a millionth of the reach within."""
LARGEST_LOG_DENSITY = 10_000.0
UNSHIELDED = "unshielded"
NEAR = 1e-5
"""Of numbers before and behind a shield: relative rounding, which does not count as an intervention."""
_NORMAL = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class Advice:
    """Output of the network for one observation."""

    action: Action  # the greedy one
    logits: Sequence[float] | None = None  # of the choices
    mean: Sequence[float] | None = None  # of the numbers, before tanh; None: they are uniform within their bounds
    deviation: Sequence[float] | None = None
    memory: NDArray[np.float32] | None = None  # for the episode's next observation, of a policy that remembers
    unshielded: Sequence[float] | None = None  # behind a shield: the logits, or the numbers, before it


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, the natural log of its probability or density, whether it was drawn, and what it is worth to an
    epsilon-greedy policy, whose logits are values. `intervened`: a shield replaced the action that was wanted; None:
    the policy has no shield."""

    action: Action
    log_prob: float = 0.0
    drawn: bool = False
    q_value: float | None = None
    memory: NDArray[np.float32] | None = None
    intervened: bool | None = None


def decide(behaviour: Behaviour, numbers: Numbers | None, advice: Advice, uniform: Uniform) -> Decision:
    intervened: bool | None = None
    if advice.unshielded is None:
        action = _drawn(behaviour, numbers, advice, uniform)
    else:
        action, intervened = _behind_shield(behaviour, advice, uniform)
    if behaviour.kind == "greedy":
        return Decision(action, memory=advice.memory, intervened=intervened)
    result = log_probability(behaviour, numbers, advice, action)
    assert result is not None  # what draws has a distribution
    valued = behaviour.kind == "epsilon-greedy" and isinstance(action, int) and advice.logits is not None
    value = float(_logits(advice)[int(action)]) if valued else None  # type: ignore[arg-type]
    return Decision(action, result, True, value, advice.memory, intervened)


def _behind_shield(behaviour: Behaviour, advice: Advice, uniform: Uniform) -> tuple[Action, bool]:
    """The action wanted, or where it is forbidden the one in its place: greedy, or drawn from what is allowed; and
    whether it was forbidden. As in training; the chances are those of `log_probability`."""
    wanted, action = advice.unshielded or (), advice.action
    finite = all(map(math.isfinite, wanted))
    if not isinstance(action, int):
        near = all(abs(one - other) <= NEAR * max(1.0, abs(one)) for one, other in zip(wanted, action, strict=True))
        return action, not (finite and near)
    if finite:
        best = max(range(len(wanted)), key=wanted.__getitem__)
        choice = _drawn(behaviour, None, Advice(best, wanted), uniform)
        if _logits(advice)[int(choice)] > FORBIDDEN:  # type: ignore[arg-type]  # of choices it is one
            return choice, False
    return _choice(behaviour, advice, uniform) if behaviour.kind == "sampled" else action, True


def _drawn(behaviour: Behaviour, numbers: Numbers | None, advice: Advice, uniform: Uniform) -> Action:
    if behaviour.kind == "greedy":
        return advice.action
    if behaviour.kind == "epsilon-greedy":
        return _any(behaviour.epsilon or 0.0, advice, uniform)
    if numbers is None:
        return _choice(behaviour, advice, uniform)
    choice = [float(_choice(behaviour, advice, uniform))] if numbers.choices else []
    return [*choice, *_numbers(behaviour, numbers, advice, uniform)]


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
    return min(max(total, -3e38), LARGEST_LOG_DENSITY)


def _float32(number: float) -> float:
    """As environments take it; bounds are float32 themselves."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


Observations = NDArray[np.float32]
Results = dict[str, NDArray[Any]]
"""By name; leading axis [batch]: `action`, int64 [batch] or float32 [batch, numbers], greedy; `logits` of the choices;
`mean` and `deviation` [batch, numbers] where numbers are drawn; `next_memory` [batch, memory] of a policy that
remembers."""


class PolicyError(RuntimeError):
    """The policy itself failed on a valid observation."""


class ModelError(ValueError):
    """The file is not a policy that can be run; one sentence saying what is wrong and what is expected."""


class Policy(Protocol):
    """A policy with discrete actions, with numbers as actions, or with a choice and numbers (hybrid)."""

    @property
    def continuous(self) -> bool:
        """Actions are vectors of numbers; of hybrid ones the first is a choice."""
        ...

    @property
    def observations(self) -> int | None:
        """Length of an observation; None when any length is taken."""
        ...

    @property
    def actions(self) -> int:
        """How many actions there are, or how many numbers make one."""
        ...

    @property
    def platform(self) -> str:
        """Platform name of the Open Inference Protocol."""
        ...

    @property
    def behaviour(self) -> Behaviour: ...

    @property
    def numbers(self) -> Numbers | None:
        """Bounds of the numbers it draws; None where it draws none."""
        ...

    @property
    def memory(self) -> int:
        """How many numbers it remembers from one observation of an episode to the next; 0: none."""
        ...

    def run(self, observation: Observations, memory: Observations | None = None) -> Results:
        """Output of the network for observations [batch, observations]; raises PolicyError.

        `memory` [batch, memory]: of each row's episode; None: the episodes begin.
        """
        ...


def advise(policy: Policy, observation: Observations, memory: Observations | None = None) -> list[Advice]:
    """Output of the network for each row; raises PolicyError."""
    results = policy.run(observation, memory) if policy.memory else policy.run(observation)
    actions = results["action"].tolist()
    columns = [results[name].tolist() if name in results else [None] * len(actions) for name in _DISTRIBUTION]
    remembered = results.get("next_memory", [None] * len(actions))
    unshielded = results[UNSHIELDED].tolist() if UNSHIELDED in results else [None] * len(actions)
    return [Advice(*row) for row in zip(actions, *columns, remembered, unshielded, strict=True)]


def written(memory: NDArray[np.float32]) -> str:
    """A memory as it travels with an episode's requests."""
    return base64.b64encode(memory.astype("<f4").tobytes()).decode()


def read(text: str, size: int) -> NDArray[np.float32]:
    """The memory [1, size] that `written` wrote; zeros for an episode that begins. Raises ValueError."""
    try:
        body = base64.b64decode(text, validate=True) if text else bytes(4 * size)
    except ValueError:  # of letters beyond ASCII, too
        body = b""
    if len(body) != 4 * size:
        raise ValueError(f"memory: is not one of {size} numbers: send back that of the episode's last answer")
    memory = np.frombuffer(body, dtype="<f4").astype(np.float32).reshape(1, size)
    if not np.isfinite(memory).all():
        raise ValueError("memory: holds a number that is not finite: send back that of the episode's last answer")
    return memory


_DISTRIBUTION = ("logits", "mean", "deviation")


def choose(
    policy: Policy,
    observation: Observations,
    uniform: Uniform,
    *,
    explore: bool = True,
    memory: Observations | None = None,
) -> list[Decision]:
    """One decision for each row, as the policy behaves, or greedily; raises PolicyError."""
    behaviour = policy.behaviour if explore else GREEDY
    return [decide(behaviour, policy.numbers, advice, uniform) for advice in advise(policy, observation, memory)]
