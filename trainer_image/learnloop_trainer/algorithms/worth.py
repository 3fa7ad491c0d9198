"""What a learner that estimates action values thinks of the actions it chose: the `q_value` of the audit record.

Only learners with a Q-function have such an estimate: the Q-learners, SAC (the lesser of its two critics) and MADDPG
(each agent's critic). PPO, V-trace, behaviour cloning and MAML judge states or nothing: they have none.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_trainer.algorithms.base import Learner
from learnloop_trainer.algorithms.dqn import Dqn
from learnloop_trainer.algorithms.hierarchical_dqn import HierarchicalDqn
from learnloop_trainer.algorithms.independent_dqn import IndependentDqn
from learnloop_trainer.algorithms.maddpg import Maddpg, joint, told, value
from learnloop_trainer.algorithms.ppo import ACTIVATION as PPO
from learnloop_trainer.algorithms.ppo import Ppo
from learnloop_trainer.algorithms.qmix import Qmix
from learnloop_trainer.algorithms.sac import ACTIVATION, Sac
from learnloop_trainer.neural.dense_networks import Floats, forward, forward_numpy
from learnloop_trainer.neural.observation_normalisation import normalised

Worth = Callable[[Observations, NDArray[Any]], Floats]


def worth(learner: Learner) -> Worth | None:
    """Values [n], or of a team [n, agents], of actions as the environment takes them; None where there are none.

    Asked between two steps, it answers for the weights that chose the action.
    """
    if isinstance(learner, Dqn | IndependentDqn | Qmix):
        return lambda seen, done: _picked(forward_numpy(learner.network.actor(), "q", "relu", _rows(seen)), done)
    if isinstance(learner, HierarchicalDqn):
        return lambda seen, done: _on_the_way(learner, seen, done)
    if isinstance(learner, Sac):
        return lambda seen, done: _by_critics(learner, seen, done)
    if isinstance(learner, Maddpg):
        return lambda seen, done: _in_team(learner, seen, done)
    return None


def outputs(learner: Learner) -> Callable[[Observations], Floats] | None:
    """Values, or PPO's logits, of every discrete action [n * agents, actions]; None where actions are numbers.

    Learners from recorded experience take no step that a shield could stop: they have none.
    """
    if learner.environment.bounds is not None:
        return None
    if isinstance(learner, Dqn | IndependentDqn | Qmix):
        return lambda seen: forward_numpy(learner.network.actor(), "q", "relu", _rows(seen))
    if isinstance(learner, HierarchicalDqn):
        return lambda seen: _towards_goal(learner, seen)
    if isinstance(learner, Ppo):
        return lambda seen: forward_numpy(
            learner.network.actor(), "policy", PPO, np.ascontiguousarray(normalised(learner.network.fixed, seen))
        )
    return None


def _rows(seen: Observations) -> Observations:
    return np.ascontiguousarray(seen.reshape(-1, seen.shape[-1]))


def _picked(values: Floats, done: NDArray[Any]) -> Floats:
    """Of values [rows, actions] those of the actions done, in their shape."""
    return np.take_along_axis(values, done.reshape(-1, 1), axis=1).reshape(done.shape)


def _on_the_way(learner: HierarchicalDqn, seen: Observations, done: NDArray[Any]) -> Floats:
    """As the controller sees it, on the way to the landmark its environment is heading for."""
    return _picked(_towards_goal(learner, seen), done)


def _towards_goal(learner: HierarchicalDqn, seen: Observations) -> Floats:
    told = np.eye(learner.landmarks, dtype=np.float32)[learner.goal]
    return forward_numpy(learner.network.actor(), "q", "relu", np.concatenate((seen, told), axis=1))


def _normalised(learner: Learner, done: NDArray[Any]) -> Floats:
    """Numbers from the environment's bounds to [-1, 1], in their shape."""
    assert learner.environment.bounds is not None  # those who ask have continuous actions
    return learner.environment.bounds.unscale(done.reshape(-1, done.shape[-1])).reshape(done.shape)


def _by_critics(learner: Sac, seen: Observations, done: NDArray[Any]) -> Floats:
    pairs = np.concatenate((seen, _normalised(learner, done)), axis=1)
    with torch.no_grad():
        leaves = learner.critics.leaves
        batch = torch.from_numpy(pairs).to(learner.critics.vector.device)
        both = [forward(leaves, name, ACTIVATION, batch).squeeze(1) for name in ("critic0", "critic1")]
        return np.asarray(torch.minimum(*both).cpu().numpy())


def _in_team(learner: Maddpg, seen: Observations, done: NDArray[Any]) -> Floats:
    device = learner.critic.vector.device
    with torch.no_grad():
        observation = torch.from_numpy(seen).to(device)
        action = joint(told(torch.from_numpy(_normalised(learner, done)).to(device), learner.choices))
        found = value(learner.critic.leaves, observation, action, centralized=learner.parameters.centralized)
        return np.asarray(found.cpu().numpy())
