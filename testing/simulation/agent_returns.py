"""Simulated returns of agents, healthy or with a planted anomaly, and the operator's rules applied to them."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from learnloop_operator.core.anomalies import TAIL, find

EPISODES = 1000
PLANTED = 600
"""Episode at which something goes wrong."""
EVERY = 10
LATEST = 200
"""Episodes after which an anomaly counts as missed."""


@dataclass(frozen=True)
class Curve:
    """Returns of one agent, oldest first; `begins` None: nothing is wrong with it."""

    kind: str
    returns: list[float]
    begins: int | None = None


def quiet(draw: random.Random) -> Curve:
    """An agent with nothing wrong: it plays as well as ever, or it learns."""
    kind = draw.choice(sorted(QUIET))
    scale, shift = 10.0 ** draw.uniform(-3, 4), draw.choice([0.0, 1.0, -1.0]) * 10.0 ** draw.uniform(-2, 4)
    return Curve(kind, [shift + scale * value for value in QUIET[kind](draw)])


def planted(kind: str, draw: random.Random) -> Curve:
    """An agent in which something goes wrong at PLANTED, on any scale."""
    scale, shift = 10.0 ** draw.uniform(-3, 4), draw.choice([0.0, 1.0, -1.0]) * 10.0 ** draw.uniform(-2, 4)
    base = [draw.gauss(0.0, 1.0) for _ in range(EPISODES)]
    return Curve(kind, [shift + scale * value for value in WRONG[kind](draw, base)], PLANTED)


def _steady(draw: random.Random) -> list[float]:
    return [draw.gauss(0.0, 1.0) for _ in range(EPISODES)]


def _successes(draw: random.Random) -> list[float]:
    chance = draw.choice([0.02, 0.1, 0.5, 0.8, 0.95])
    return [float(draw.random() < chance) for _ in range(EPISODES)]


def _heavy(draw: random.Random) -> list[float]:
    return [draw.paretovariate(1.5) * draw.choice([-1.0, 1.0]) for _ in range(EPISODES)]


def _learning(draw: random.Random) -> list[float]:
    """An S-curve whose spread grows with its height, as CartPole's does."""
    middle, slope = draw.uniform(200, 700), draw.uniform(20, 150)
    returns = []
    for episode in range(EPISODES):
        height = 1.0 / (1.0 + math.exp(-(episode - middle) / slope))
        returns.append(height * 10.0 + draw.gauss(0.0, 0.3 + 2.0 * height))
    return returns


def _capped(draw: random.Random) -> list[float]:
    """Most episodes reach the limit, some end early."""
    return [500.0 if draw.random() < 0.85 else draw.uniform(50.0, 500.0) for _ in range(EPISODES)]


def _correlated(draw: random.Random) -> list[float]:
    """Neighbouring episodes are alike: the policy changes slowly."""
    returns, value = [], 0.0
    for _ in range(EPISODES):
        value = 0.3 * value + draw.gauss(0.0, 1.0)
        returns.append(value)
    return returns


def _dropped(draw: random.Random, base: list[float]) -> list[float]:
    depth = draw.uniform(3.0, 6.0)
    return [value - (depth if index >= PLANTED else 0.0) for index, value in enumerate(base)]


def _unstable(draw: random.Random, base: list[float]) -> list[float]:
    wider = draw.uniform(5.0, 8.0)
    return [value * (wider if index >= PLANTED else 1.0) for index, value in enumerate(base)]


def _declining(draw: random.Random, base: list[float]) -> list[float]:
    fall = draw.uniform(4.0, 6.0)
    return [value - fall * min(1.0, max(0.0, (index - PLANTED) / 200.0)) for index, value in enumerate(base)]


QUIET: Mapping[str, Callable[[random.Random], list[float]]] = {
    "steady": _steady,
    "successes": _successes,
    "heavy": _heavy,
    "learning": _learning,
    "capped": _capped,
    "correlated": _correlated,
}
WRONG: Mapping[str, Callable[[random.Random, list[float]], list[float]]] = {
    "drop": _dropped,
    "instability": _unstable,
    "decline": _declining,
}


@dataclass(frozen=True)
class Detection:
    """Alarms of one agent.

    Attributes:
        false_alarm: an alarm before anything went wrong, or where nothing does.
        after: episodes from the anomaly to the first alarm; None: never, or without an anomaly.
    """

    false_alarm: bool
    after: int | None


def look(curve: Curve) -> Detection:
    """Apply the rules every EVERY episodes, as the operator does."""
    begins = len(curve.returns) if curve.begins is None else curve.begins
    false_alarm = False
    for end in range(EVERY, min(len(curve.returns), begins + LATEST) + 1, EVERY):
        alarm = bool(find(curve.returns[max(0, end - TAIL) : end]).findings)
        if end > begins and alarm:
            return Detection(false_alarm, end - begins)
        false_alarm = false_alarm or alarm
    return Detection(false_alarm, None)
