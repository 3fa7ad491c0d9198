"""What is read from the logged steps of an episode: smoothness of the actions, potentials, division of the reward."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from learnloop_api.kinds.reward_components import LARGEST_REWARD, CreditAssignment, PotentialShaping

Log = Sequence[Mapping[str, Any]]


def mean_change(log: Log) -> float | None:
    """The mean of `change` over consecutive actions; None with fewer than two actions."""
    if len(log) < 2:
        return None
    changes = [change(before.get("action"), after.get("action")) for before, after in pairwise(log)]
    return sum(changes) / len(changes)


def potential_terms(rule: PotentialShaping, log: Log) -> list[float]:
    """For each step, discounted to the start: discount^t × (discount × potential(t+1) - potential(t)).

    The potential of the end is 0 where the episode terminated, as it must be to change no optimal policy (Grześ, AAMAS
    2017). Where it was cut off, the observation after the last step is not known, and that step's term is 0. An
    observation without that number has potential 0.
    """
    potentials = potentials_of(rule, [step.get("observation") for step in log])
    if log and log[-1].get("terminated"):
        potentials.append(0.0)
    terms = [
        rule.discount**index * (rule.discount * after - before)
        for index, (before, after) in enumerate(pairwise(potentials))
    ]
    return terms + [0.0] * (len(log) - len(terms))


def potential_sum(rule: PotentialShaping, log: Log) -> float:
    """The sum of `potential_terms`, which telescopes: only the first and the last observation matter."""
    if not log:
        return 0.0
    last = len(log) - 1
    found = potentials_of(rule, [step.get("observation") for step in log])
    end = 0.0 if log[-1].get("terminated") else rule.discount**last * found[-1]
    return end - found[0]


def credits(rule: CreditAssignment, reward: float, log: Log) -> list[float]:
    """The part of each step in the episode's reward; the parts add up to it.

    Args:
        rule: how to divide.
        reward: of the whole episode.
        log: its T steps; with none the answer is empty.
    """
    if not log:
        return []
    count = len(log)
    match rule.method:
        case "final":
            shares = [0.0] * (count - 1) + [1.0]
        case "discounted":
            shares = [rule.discount ** (count - 1 - index) for index in range(count)]
        case "environment":
            shares = [abs(float(step.get("reward") or 0.0)) for step in log]
        case _:
            shares = [1.0] * count
    largest = max(shares)
    if largest <= 0:
        shares, largest = [1.0] * count, 1.0
    # Divided by the largest first: a sum of huge rewards must not overflow.
    shares = [share / largest for share in shares]
    total = sum(shares)
    return [reward * (share / total) for share in shares]


def division(rule: CreditAssignment, reward: float, steps: int, log: Log) -> dict[str, Any]:
    """What stays to say of `credits` when the steps are gone: of how many, which got the most, and how much.

    Args:
        steps: length of the episode.
        log: its steps; only the method environment reads them, and without them it divides as uniform does.
    """
    parts = credits(rule, reward, log if rule.method == "environment" and log else [{}] * steps)
    found: dict[str, Any] = {"method": rule.method, "steps": steps}
    if not parts:
        return found
    most = max(range(len(parts)), key=lambda index: abs(parts[index]))
    return found | {"last": parts[-1], "largest": parts[most], "largest_step": most}


def potentials_of(rule: PotentialShaping, observations: Sequence[Any]) -> list[float]:
    """Of consecutive observations. A milestone that was mentioned once stays reached: what was said is part of the
    state that an agent with a memory of its conversation is in."""
    if rule.milestones is None:
        return [potential(rule, observation) for observation in observations]
    phrases = [phrase.casefold() for phrase in rule.milestones]
    reached: set[int] = set()
    found = []
    for observation in observations:
        if len(reached) < len(phrases):
            said = " ".join(_texts(observation)).casefold()
            reached |= {index for index, phrase in enumerate(phrases) if phrase in said}
        found.append(rule.weight * len(reached) / len(phrases))
    return found


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, of any depth, but no names of fields."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            waiting.extend(item[::-1])


def potential(rule: PotentialShaping, observation: Any) -> float:
    """Of an observation of numbers; 0 where it has no such number."""
    if rule.observation is None or not isinstance(observation, list) or rule.observation >= len(observation):
        return 0.0
    return min(LARGEST_REWARD, max(-LARGEST_REWARD, rule.weight * float(observation[rule.observation])))


def change(before: Any, after: Any) -> float:
    """Of two actions: of vectors of one length their mean absolute difference; else 1 unless they are equal."""
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after) > 0:
        return float(sum(abs(x - y) for x, y in zip(before, after, strict=True)) / len(before))
    return 0.0 if before == after else 1.0
