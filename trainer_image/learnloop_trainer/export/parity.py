"""Does the exported policy, in whatever format, decide as the trained network does?"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import Parity
from learnloop_environments.action_spaces import MASKED
from learnloop_environments.base import Observations

BATCHES = (1, 3, 17)
TOLERANCE = 1e-5  # of the largest logit's size, at least 1: a few units in the last place of float32
Logits = NDArray[np.float32]


class Exported(Protocol):
    """A policy as it was written down, loaded again."""

    continuous: bool
    hybrid: bool  # continuous, and the first number is a choice

    def run(self, observation: Observations) -> tuple[NDArray[Any], Logits]:
        """Actions [n] and logits [n, actions] for observations [n, observations]; continuous actions stand for both."""

    def logits(self, observation: Observations) -> Logits:
        """Those of the choices [n, choices]."""


def _unmasked(logits: Logits) -> Logits:
    """Logits with those of forbidden actions at 0: they carry no size, and both sides put them in the same places."""
    return np.where(logits <= MASKED, np.float32(0), logits)


def _tied(logits: Logits, tolerance: float) -> NDArray[np.bool_]:
    ordered = np.sort(logits, axis=1)
    return ordered[:, -1] - ordered[:, -2] <= 2 * tolerance if logits.shape[1] > 1 else np.ones(len(logits), bool)


def _near(action: NDArray[Any], expected: Logits, tolerance: float) -> NDArray[np.bool_]:
    return np.asarray(np.abs(action - expected).max(axis=1) <= tolerance)


def _chosen(action: NDArray[Any], expected: Logits, tolerance: float) -> NDArray[np.bool_]:
    return np.asarray((action == expected.argmax(axis=1)) | _tied(expected, tolerance))


def check(
    network: Callable[[Observations], Logits], policy: Exported, observations: Observations, recorded: int
) -> Parity:
    """Run both on all observations [m, observations] at batch sizes 1, 3 and 17 and compare.

    Passed means: no output differs by more than the tolerance, and every action agrees unless the two best logits are
    closer together than rounding can tell. Continuous actions are themselves the outputs compared; so are hybrid ones,
    but where their two best choices are that close.
    """
    expected = network(observations)
    tolerance = TOLERANCE * max(1.0, float(np.abs(_unmasked(expected)).max()))
    worst, agreed = 0.0, np.ones(len(observations), dtype=np.bool_)
    for size in BATCHES:
        pieces = [policy.run(observations[at : at + size]) for at in range(0, len(observations), size)]
        action = np.concatenate([piece[0] for piece in pieces])
        outputs = np.concatenate([piece[1] for piece in pieces])
        if policy.hybrid:
            tied = _tied(policy.logits(observations), tolerance)[:, None]
            action = outputs = np.where(tied, expected, outputs)
        difference = np.abs(outputs - expected).max() if np.isfinite(outputs).all() else np.finfo(np.float32).max
        worst = max(worst, float(difference))
        agreed &= (_near if policy.continuous else _chosen)(action, expected, tolerance)
    return Parity(
        observations=len(observations),
        recorded=recorded,
        max_abs_difference=worst,
        action_agreement=float(agreed.mean()),
        passed=worst <= tolerance and bool(agreed.all()),
    )
