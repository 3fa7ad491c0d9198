"""From an environment's name to n of it."""

from learnloop_trainer.environments.base import VectorEnvironment
from learnloop_trainer.environments.cartpole import CartPole
from learnloop_trainer.environments.gymnasium_vector import GymnasiumVector
from learnloop_trainer.environments.pendulum import Pendulum
from learnloop_trainer.randomness import Split

NATIVE: dict[str, type[CartPole] | type[Pendulum]] = {"CartPole-v1": CartPole, "Pendulum-v1": Pendulum}


def make(name: str, split: Split, seed: int, members: range) -> VectorEnvironment:
    """The native environment of this name, else Gymnasium's; raises ConfigError when there is none."""
    native = NATIVE.get(name)
    return native(split, seed, members) if native else GymnasiumVector(name, split, seed, members)
