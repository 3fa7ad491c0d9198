"""The held-out episodes of a run: nominal, or under other conditions."""

from dataclasses import replace

from learnloop_api.wire.training import HeldOut
from learnloop_environments import Conditions, VectorEnvironment, make
from learnloop_environments.randomness import Split
from learnloop_environments.simulation import Simulation
from learnloop_environments.wrappers import innermost
from learnloop_trainer.evaluation.play import World
from learnloop_trainer.safety import shielded
from learnloop_trainer.training_order import Order


def nominal(order: Order) -> Conditions:
    """What evaluation plays: nominal physics and the level the run is to reach."""
    level = order.spec.data.level
    if order.spec.curriculum is not None:
        level = order.spec.curriculum.until or list(getattr(sample(order), "LEVELS", ()))[-1].name
    return Conditions(level)


def sample(order: Order) -> Simulation | VectorEnvironment:
    """One environment of the run, already closed: for what it says of itself."""
    environment = make(order.environment, Split.HELD_OUT, order.spec.seed, range(1))
    environment.close()
    inner: Simulation | VectorEnvironment = innermost(environment)
    return inner


def episodes(order: Order) -> HeldOut:
    """Which held-out episodes prove the run."""
    spec, asked = order.spec, order.spec.evaluation
    seed = spec.seed if asked.seed is None else asked.seed
    return HeldOut(seed=seed, first=asked.first_episode or 0, episodes=asked.episodes)


def held_out(
    order: Order, conditions: Conditions | None = None, first: int = 0, split: Split = Split.HELD_OUT
) -> World:
    """Episodes with plain rewards, behind the shield: it is obeyed even in evaluation, and by the baseline too.

    Numbers of episodes begin at `first`, counted from the run's first held-out one: two worlds whose numbers do not
    overlap share no seed. Training's episodes belong to the run's seed alone, and are counted from 0.
    """
    spec, proof = order.spec, episodes(order)
    seed, zero = (proof.seed, proof.first) if split is Split.HELD_OUT else (spec.seed, 0)
    chosen = replace(nominal(order) if conditions is None else conditions, credit="team")

    def opened(members: range) -> VectorEnvironment:
        numbers = range(members.start + first + zero, members.stop + first + zero)
        return shielded(make(order.environment, split, seed, numbers, chosen), spec.safety)

    return opened
