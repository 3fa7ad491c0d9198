"""How far an update may go from the policy that serves.

The divergence is KL(serving || update), averaged over observations. Training stops at TRAINED of the bound; the proof
measures again on held-out episodes, and the operator's gate compares that with the bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from learnloop_environments.spaces import Observations
from learnloop_trainer import baseline_policy, distributed, evaluation, progress_reporter, store, training_order
from learnloop_trainer.algorithms import Learner
from learnloop_trainer.export.exported_policy import Behaving, written
from learnloop_trainer.neural.networks import Floats
from learnloop_trainer.training_run.validation import JudgedPolicy

MOST_ROWS = 10_000
LARGEST = 1e6
"""In the place of infinity, where the update never does what the serving policy may do, and of no number."""
TRAINED = 0.5


def divergence(serving: evaluation.Policy, update: evaluation.Policy, observation: Observations) -> float | None:
    """Mean KL divergence over observations [n, observations]; None where a policy draws nothing."""
    if not isinstance(serving, Behaving) or not isinstance(update, Behaving) or not (serving.draws and update.draws):
        return None
    met = observation[:MOST_ROWS]
    mixture = serving.mixture(met)
    count = mixture.weight.shape[1]
    rows, action = np.repeat(met, count, axis=0), mixture.action.reshape(len(met) * count, *mixture.action.shape[2:])
    weight = mixture.weight.reshape(-1)
    with np.errstate(invalid="ignore"):
        gap = serving.log_probability(rows, action) - update.log_probability(rows, action)
    total = float(np.where(weight == 0, 0.0, weight * np.minimum(gap, LARGEST)).sum()) / len(met)
    return min(max(0.0, total), LARGEST) if np.isfinite(total) else LARGEST


@dataclass(slots=True)
class KlBound:
    """Ends an update before a round that takes it too far."""

    order: training_order.Order
    learner: Learner
    serving: Behaving
    limit: float
    ended: bool = False

    def weights(self) -> dict[str, Floats]:
        return {name: np.array(array) for name, array in self.learner.network.exported().items()}

    def hold(self, step: int, before: Mapping[str, Floats], observation: Observations) -> None:
        """After a round: where it went too far, take the `step` and the weights `before` it, and end."""
        learner = self.learner
        update = Behaving(written(self.order, learner.environment, self.weights())[1], self.order.spec.seed)
        kl = divergence(self.serving, update, observation.reshape(-1, learner.environment.observations))
        if kl is None or kl <= self.limit:
            return
        JudgedPolicy(learner, self.order, distributed.Alone()).take(before)
        learner.step, self.ended = step, True
        progress_reporter.say(f"ends at step {step}: the next KL divergence is {kl:.3g}, of {self.limit:.3g}")


def bound_of(order: training_order.Order, learner: Learner, data: store.Store) -> KlBound | None:
    """The bound of an update; None where no trained policy serves yet."""
    continuous, world = order.spec.continuous, learner.environment
    if order.update is None or continuous is None:
        return None
    body = baseline_policy.artifact(order, data)
    serving = baseline_policy.policy(order, body, world.observations, world.actions, world.bounds)
    if not isinstance(serving, Behaving):
        return None
    return KlBound(order, learner, serving, TRAINED * continuous.max_kl)
