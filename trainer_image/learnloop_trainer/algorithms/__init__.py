"""One file per algorithm; `learner` picks it."""

from typing import Any

import torch

from learnloop_api.kinds.training.algorithms import (
    BcParameters,
    DqnParameters,
    Parameters,
    PpoParameters,
    SacParameters,
)
from learnloop_api.kinds.training.offline_and_meta_algorithms import (
    HierarchicalDqnParameters,
    MamlParameters,
    VtraceParameters,
)
from learnloop_api.kinds.training.team_algorithms import IndependentDqnParameters, MaddpgParameters, QmixParameters
from learnloop_environments import VectorEnvironment
from learnloop_trainer.algorithms.base import Learner, Occasion
from learnloop_trainer.algorithms.bc import Bc
from learnloop_trainer.algorithms.dqn import Dqn
from learnloop_trainer.algorithms.hierarchical_dqn import HierarchicalDqn
from learnloop_trainer.algorithms.independent_dqn import IndependentDqn
from learnloop_trainer.algorithms.maddpg import Maddpg
from learnloop_trainer.algorithms.maml import Maml
from learnloop_trainer.algorithms.ppo import Ppo
from learnloop_trainer.algorithms.qmix import Qmix
from learnloop_trainer.algorithms.sac import Sac
from learnloop_trainer.algorithms.vtrace import Vtrace

__all__ = ["Learner", "Occasion", "learner"]

LEARNERS: dict[type[Parameters], Any] = {
    PpoParameters: Ppo,
    DqnParameters: Dqn,
    SacParameters: Sac,
    BcParameters: Bc,
    IndependentDqnParameters: IndependentDqn,
    QmixParameters: Qmix,
    MaddpgParameters: Maddpg,
    HierarchicalDqnParameters: HierarchicalDqn,
    VtraceParameters: Vtrace,
    MamlParameters: Maml,
}


def learner(
    parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
) -> Learner:
    """The algorithm these parameters belong to, freshly initialised."""
    made: Learner = LEARNERS[type(parameters)](parameters, environment, occasion, device)
    return made
