"""From an environment's name to n of it."""

import importlib
import os
from typing import Any

import gymnasium

from learnloop_api.names import ENV_ENVIRONMENT_DIRECTORY
from learnloop_environments import own_code
from learnloop_environments.base import FIELD, ActionSpace, VectorEnvironment
from learnloop_environments.classics import CartPole, Pendulum
from learnloop_environments.errors import ConfigError
from learnloop_environments.interfaces.vectors import GymnasiumVector, TeamVector, close
from learnloop_environments.randomness import Split
from learnloop_environments.simulation import NOMINAL, Conditions, Simulation
from learnloop_environments.wrappers import guarded

CLASSICS: dict[str, type[CartPole] | type[Pendulum]] = {"CartPole-v1": CartPole, "Pendulum-v1": Pendulum}


def make(name: str, split: Split, seed: int, members: range, conditions: Conditions = NOMINAL) -> VectorEnvironment:
    """The native environment of this name, else the one behind `module:EntryPoint`, else Gymnasium's.

    Raises ConfigError when there is none, or when it cannot be played under these conditions.
    """
    if (classic := CLASSICS.get(name)) and conditions == NOMINAL:
        return classic(split, seed, members)
    return guarded(name, lambda: _foreign(name, split, seed, members, conditions))


def _foreign(name: str, split: Split, seed: int, members: range, conditions: Conditions) -> VectorEnvironment:
    """An environment that is not built into this image."""
    entry = entry_point(name)
    if isinstance(entry, type) and issubclass(entry, Simulation):
        return entry(split, seed, members, conditions)
    if conditions != NOMINAL:
        problem, fix = "has no levels, credit or randomised parameters", "leave them out, or name a Simulation"
        raise ConfigError(FIELD, name, problem, fix)
    if entry is None:
        return GymnasiumVector(name, split, seed, members)
    if isinstance(entry, type) and issubclass(entry, gymnasium.Env):
        return GymnasiumVector(name, split, seed, members, entry)
    if hasattr(entry, "possible_agents") or hasattr(entry, "observation_spaces"):
        return TeamVector(name, split, seed, members, entry)
    return _built(name, entry, split, seed, members)


def code_digest(name: str) -> str:
    """SHA-256 of the code of the environment of this name; raises ConfigError as `make` does.

    Two processes that agree on it play the same environment.
    """
    return own_code.code(CLASSICS.get(name) or entry_point(name), os.environ.get(ENV_ENVIRONMENT_DIRECTORY))


def action_space(name: str) -> ActionSpace:
    """The actions of the environment of this name; raises ConfigError as `make` does."""
    world = make(name, Split.TRAINING, 0, range(1))
    try:
        return ActionSpace.of(world)
    finally:
        world.close()


def entry_point(name: str) -> Any:
    """The object that `module:EntryPoint` names; None when the name has another form."""
    module, colon, attribute = name.partition(":")
    if not colon or not attribute.isidentifier():
        return None
    try:
        imported = importlib.import_module(module)
    except Exception as error:  # the user's own code runs here and may raise anything
        fix = "put the module into the trainer image, or into spec.data.environmentConfigMap, and correct it"
        problem = f"cannot be imported ({type(error).__name__}: {str(error)[:200]})"
        raise ConfigError(FIELD, name, problem, fix) from None
    if not hasattr(imported, attribute):
        fix = "name a class or function of that module"
        raise ConfigError(FIELD, name, f"does not exist: module {module} has no {attribute}", fix)
    return getattr(imported, attribute)


def _built(name: str, entry: Any, split: Split, seed: int, members: range) -> VectorEnvironment:
    """The product of a user's function or class: a VectorEnvironment, or one environment to be played n times."""
    parts = ("reset", "step", "state", "restore", "close", "observations", "actions", "bounds")
    if callable(entry) and all(hasattr(entry, part) for part in parts):
        environment: VectorEnvironment = entry(split, seed, members)
        return environment
    if not callable(entry):
        raise ConfigError(FIELD, name, "is neither a class nor a function", "name one that makes an environment")
    sample = entry()
    kind = TeamVector if hasattr(sample, "possible_agents") else GymnasiumVector
    close(sample)
    return kind(name, split, seed, members, entry)
