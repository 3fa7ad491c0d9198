"""Behaviour cloning: do what the recorded agent did.

Pomerleau (1989), "ALVINN", NeurIPS 1; Bain & Sammut (1995). Over recorded pairs of observation s and action a:

    discrete:   L = E[ -log pi(a|s) ],    continuous: L = E[ |tanh(mu(s)) - a|^2 ],   a scaled to [-1, 1]

Deviations, all deliberate:
- `totalSteps` counts the recorded steps learned from, again and again; the environment is only played in evaluation.
- The learning rate falls linearly to zero. The gradient is written out by hand, as everywhere here.
- The recording becomes part of the checkpoint: experience that arrives later cannot change a run that was interrupted.
- A batch is drawn from the whole recording, each rank sums over its part of it and the sums are added up.
"""

import numpy as np
import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment, randomness
from learnloop_environments.spaces import ActionType
from learnloop_trainer.algorithms import base, logged_batches
from learnloop_trainer.neural.networks import Network, Stack, dense
from learnloop_trainer.recordings import Recording

ACTIVATION = "tanh"


def init(parameters: Parameters, observations: int, outputs: int, seed: int, device: torch.device) -> Network:
    return Network(dense("policy", [observations, *parameters.hidden, outputs], 0.01, seed, 0), device)


def slope(outputs: torch.Tensor, action: torch.Tensor, out: torch.Tensor) -> None:
    """Gradient of the summed loss by the network's outputs [n, outputs]; action int64 [n] or float32 [n, outputs]."""
    if action.dtype == torch.int64:
        torch.softmax(outputs, 1, out=out)
        out.scatter_add_(1, action.unsqueeze(1), out.new_full((len(action), 1), -1.0))
        return
    squashed = torch.tanh(outputs)
    torch.sub(squashed, action, out=out)
    out.mul_(squashed.square_().neg_().add_(1.0)).mul_(2.0)


class Bc(logged_batches.RecordingLearner):
    """Behaviour cloning on this rank's part of every batch."""

    UPDATES = 32

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: base.Occasion, device: torch.device
    ) -> None:
        network = init(parameters, environment.observations, environment.actions, occasion.seed, device)
        super().__init__(parameters, environment, occasion, network)
        self._policy = Stack(network, ["policy"], ACTIVATION, range(len(parameters.hidden) + 1))
        self._draws = randomness.Draws((parameters.batch_size,), randomness.Purpose.REPLAY, occasion.seed)

    def _take(self, recording: Recording) -> None:
        device = self.network.vector.device
        self._observation = torch.from_numpy(recording.observation).to(device)
        self._action = torch.from_numpy(recording.action).to(device)

    @torch.inference_mode()
    def _update(self) -> int:
        size, share = self.parameters.batch_size, self.occasion.group.place.share(self.parameters.batch_size)
        draws = self._draws.at(self.network.updates)[share.start : share.stop]
        index = torch.from_numpy((draws * len(self._action)).astype(np.int64)).to(self._action.device)
        outputs = self._policy.forward(self._observation.index_select(0, index))[0]
        incoming = self._policy.incoming(len(index))[0]
        slope(outputs, self._action.index_select(0, index), incoming)
        incoming.div_(size)
        self._policy.backward(len(index))
        self.apply(self.network)
        return int(size)


base.register(
    base.Traits(
        name="bc",
        learner=Bc,
        head="policy",
        activation=ACTIVATION,
        actions=frozenset({ActionType.DISCRETE, ActionType.CONTINUOUS}),
        recorded=True,
    )
)
