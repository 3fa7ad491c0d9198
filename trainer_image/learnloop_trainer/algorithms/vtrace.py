"""Learning from logged experience: an off-policy actor-critic on recorded trajectories.

Espeholt et al. (2018), arXiv 1802.01561, equation 1 and section 4.2; mu is the policy that acted, whose log-probability
every recorded step carries, pi the one that learns:

rho_t = min(rho_max, pi(a_t|s_t) / mu(a_t|s_t)),    c_t = lambda min(1, pi(a_t|s_t) / mu(a_t|s_t)) v_t = V(s_t) +
delta_t + gamma c_t (v_{t+1} - V(s_{t+1})),    delta_t = rho_t (r_t + gamma V(s_{t+1}) - V(s_t)) L = sum_t [ (v_t -
V(s_t))^2 c_v / 2 - rho_t log pi(a_t|s_t) A_t - c_e H(pi(.|s_t)) ],    A_t = r_t + gamma v_{t+1} - V(s_t)

and after Nair et al. (2020), arXiv 2006.09359, -log pi(a_t|s_t) is weighted by `imitation` besides: with no new
experience to correct it, a policy must stay where the recording can judge it.

Deviations, all deliberate:
- `totalSteps` counts recorded steps learned from; the environment is played in evaluation only.
- A batch is whole episodes, drawn from all of them; each rank sums over its part and the sums are added up.
- Steps without a log-probability are refused: taking mu for pi would bias the result without a word.
- Actions may be numbers too, or a choice and numbers: the policy's distribution follows from the environment's actions
  (see `heads`), and the recorded log-density is that of the numbers as the environment took them. Where there are
  numbers, only positive advantages count (as in Wang et al., 2020, arXiv 2006.15134): pushing the density of bad
  numbers down has no end, and drives the policy to where the recording cannot judge it.
- A recorded truncation, or an episode cut off, bootstraps from the value of what was seen after its last step; of
  trajectories recorded before they said that, from the value of what was seen before it.
- The recording becomes part of the checkpoint, as in bc.py. Gradients by autograd.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment
from learnloop_environments.base import Bounds
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Draws, Purpose
from learnloop_trainer.algorithms.action_heads import DEVIATION, LEAST, MOST, Head, fitting
from learnloop_trainer.algorithms.base import ALL_ACTIONS, Occasion, Traits, register
from learnloop_trainer.algorithms.replaying import RecordingLearner
from learnloop_trainer.neural.networks import Network, dense, forward
from learnloop_trainer.recordings import Recording

ACTIVATION = "tanh"
EDGE = 1.0 - 1e-6


def init(parameters: Parameters, observations: int, head: Head, seed: int, device: torch.device) -> Network:
    """Fresh policy and value networks; a nearly uniform first policy, or one around the middle of its bounds."""
    arrays = dense("policy", [observations, *parameters.hidden, head.outputs], 0.01, seed, 0)
    arrays |= dense("value", [observations, *parameters.hidden, 1], 1.0, seed, 1)
    return Network(arrays | head.parameters(), device)


def before_squashing(
    action: NDArray[Any], log_prob: NDArray[np.float32], bounds: Bounds | None
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Recorded actions as the head keeps them, and their log-densities there.

    Numbers a = reach tanh(u) + centre: log mu(u) = log mu(a) + sum log(reach (1 - tanh(u)^2)). A number at its bound
    has no finite u: it is taken for one a millionth of the reach within.
    """
    if bounds is None:
        return action, log_prob
    first = int(bool(bounds.choices))
    squashed = np.clip(action[:, first:].astype(np.float64), -EDGE, EDGE)
    change = np.log(bounds.reach[first:] * (1.0 - np.square(squashed))).sum(axis=1)
    unsquashed = np.concatenate((action[:, :first], np.arctanh(squashed)), axis=1).astype(np.float32)
    return unsquashed, (log_prob + change).astype(np.float32)


def targets(
    value: torch.Tensor,
    reward: torch.Tensor,
    ratio: torch.Tensor,
    last: torch.Tensor,
    terminated: torch.Tensor,
    parameters: Parameters,
    beyond: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Value targets v and advantages A of consecutive steps [n], all episodes one after another.

    `last` marks an episode's last step, `terminated` those whose future is worth nothing; that of another last step is
    worth `beyond`, one number for each last step: the value of what was seen after it. None: that was not recorded, and
    the value of the step's own observation stands in.
    """
    rho, trace = ratio.clamp(max=parameters.ratio_max), parameters.trace * ratio.clamp(max=1.0)
    following = torch.cat((value[1:], value[-1:]))
    after_last = value if beyond is None else value.masked_scatter(last, beyond)
    following = torch.where(last, after_last, following) * ~terminated
    delta = rho * (reward + parameters.discount * following - value)
    goes_on = parameters.discount * trace * ~last
    correction, running = torch.empty_like(value), value.new_zeros(())
    for t in range(len(value) - 1, -1, -1):
        running = delta[t] + goes_on[t] * running
        correction[t] = running
    goal = value + correction
    after = torch.where(last, following, torch.cat((goal[1:], goal[-1:])))
    return goal, reward + parameters.discount * after - value


class Vtrace(RecordingLearner):
    """Off-policy actor-critic on this rank's part of every batch of recorded episodes."""

    UPDATES = 8

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
    ) -> None:
        self.head = fitting(environment)
        network = init(parameters, environment.observations, self.head, occasion.seed, device)
        super().__init__(parameters, environment, occasion, network)
        self._draws = Draws((parameters.batch_episodes,), Purpose.REPLAY, occasion.seed)

    def _take(self, recording: Recording) -> None:
        if not np.isfinite(recording.log_prob).all():
            fix = "record it (the policy server and the SDK do where actions are drawn), or set algorithm to bc"
            raise ConfigError(
                "spec.data", "(recording)", "has steps without the behaviour policy's log-probability", fix
            )
        self._taken = before_squashing(recording.action, recording.log_prob, self.environment.bounds)
        self._endings = recording.endings()
        ends = np.flatnonzero(recording.last) + 1
        # Of the episode that a step belongs to.
        self._number: NDArray[np.int64] = np.cumsum(recording.last) - recording.last
        self._episodes = list(zip(np.concatenate(([0], ends[:-1])).tolist(), ends.tolist(), strict=True))

    def _update(self) -> int:
        """One batch of episodes; returns how many steps it had over all ranks."""
        assert self.recording is not None
        draws = (self._draws.at(self.network.updates) * len(self._episodes)).astype(np.int64)
        spans = [self._episodes[index] for index in draws]
        total = int(sum(stop - start for start, stop in spans))
        share = self.occasion.group.place.share(len(spans))
        rows = [np.arange(start, stop) for start, stop in spans[share.start : share.stop]]
        if rows:
            torch.autograd.backward(self.loss(self.recording, np.concatenate(rows)) / total)
        self.apply(self.network)
        return total

    def loss(self, recording: Recording, rows: NDArray[np.int64]) -> torch.Tensor:
        """The summed loss of these recorded steps: whole episodes, one after another."""
        parameters, device, leaves = self.parameters, self.network.vector.device, self.network.leaves

        def field(array: NDArray[np.generic]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array[rows])).to(device)

        observation, taken, behaviour = (field(array) for array in (recording.observation, *self._taken))
        outputs = forward(leaves, "policy", ACTIVATION, observation)
        chosen = self.head.log_prob(leaves, outputs, taken)
        value = forward(leaves, "value", ACTIVATION, observation).squeeze(1)
        with torch.no_grad():
            ratio = (chosen - behaviour).exp()
            ends = field(recording.last), field(recording.terminated)
            over = rows[recording.last[rows]]
            endings = torch.from_numpy(self._endings[self._number[over]]).to(device)
            beyond = forward(leaves, "value", ACTIVATION, endings).squeeze(1)
            goal, advantage = targets(value, field(recording.reward), ratio, *ends, parameters, beyond)
            if self.environment.bounds is not None:
                advantage = advantage.clamp(min=0.0)  # a density can be pushed down without end
            weight = ratio.clamp(max=parameters.ratio_max) * advantage + parameters.imitation
        error = (goal - value).square().sum() * 0.5 * parameters.value_coefficient
        entropy = self.head.entropy(leaves, outputs).sum() * parameters.entropy_coefficient
        return error - entropy - (weight * chosen).sum()


register(
    Traits(
        name="vtrace",
        learner=Vtrace,
        head="policy",
        activation=ACTIVATION,
        actions=ALL_ACTIONS,
        recorded=True,
        deviation=(DEVIATION, LEAST, MOST),
    )
)
