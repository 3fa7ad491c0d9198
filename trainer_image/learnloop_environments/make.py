"""From an environment's name to n of it, and to the world that a language model talks to."""

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium

from learnloop_api.names import ENV_ENVIRONMENT_DIRECTORY
from learnloop_environments import cartpole_and_pendulum, errors, randomness, simulation, user_environment, watchdog
from learnloop_environments.conversations.conversation_world import ConversationWorld
from learnloop_environments.conversations.tool_lookup import ToolLookup, guarded, one_key
from learnloop_environments.interfaces.gymnasium_vectors import GymnasiumVector, TeamVector, close
from learnloop_environments.spaces import FIELD, ActionSpace, VectorEnvironment

CLASSICS: dict[str, type[cartpole_and_pendulum.CartPole] | type[cartpole_and_pendulum.Pendulum]] = {
    "CartPole-v1": cartpole_and_pendulum.CartPole,
    "Pendulum-v1": cartpole_and_pendulum.Pendulum,
}


def make(
    name: str,
    split: randomness.Split,
    seed: int,
    members: range,
    conditions: simulation.Conditions = simulation.NOMINAL,
) -> VectorEnvironment:
    """The native environment of this name, else the one behind `module:EntryPoint`, else Gymnasium's.

    Raises ConfigError when there is none, or when it cannot be played under these conditions.
    """
    if (classic := CLASSICS.get(name)) and replace(conditions, max_steps=None) == simulation.NOMINAL:
        return classic(split, seed, members, conditions.max_steps)
    return watchdog.guarded(name, lambda: _foreign(name, split, seed, members, conditions))


def _foreign(
    name: str, split: randomness.Split, seed: int, members: range, conditions: simulation.Conditions
) -> VectorEnvironment:
    """An environment that is not built into this image."""
    entry = entry_point(name)
    if isinstance(entry, type) and issubclass(entry, simulation.Simulation):
        return entry(split, seed, members, conditions)
    if replace(conditions, max_steps=None) != simulation.NOMINAL:
        problem, fix = "has no levels, credit or randomised parameters", "leave them out, or name a Simulation"
        raise errors.ConfigError(FIELD, name, problem, fix)
    if entry is None:
        return GymnasiumVector(name, split, seed, members, None, conditions.max_steps)
    if isinstance(entry, type) and issubclass(entry, gymnasium.Env):
        return GymnasiumVector(name, split, seed, members, entry, conditions.max_steps)
    if hasattr(entry, "possible_agents") or hasattr(entry, "observation_spaces"):
        return TeamVector(name, split, seed, members, entry, conditions.max_steps)
    return _built(name, entry, split, seed, members, conditions.max_steps)


def code_digest(name: str) -> str:
    """SHA-256 of the code of the environment of this name; raises ConfigError as `make` does.

    Two processes that agree on it play the same environment.
    """
    return user_environment.code(CLASSICS.get(name) or entry_point(name), os.environ.get(ENV_ENVIRONMENT_DIRECTORY))


def action_space(name: str) -> ActionSpace:
    """The actions of the environment of this name; raises ConfigError as `make` does."""
    world = make(name, randomness.Split.TRAINING, 0, range(1))
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
        raise errors.ConfigError(FIELD, name, problem, fix) from None
    if not hasattr(imported, attribute):
        fix = "name a class or function of that module"
        raise errors.ConfigError(FIELD, name, f"does not exist: module {module} has no {attribute}", fix)
    return getattr(imported, attribute)


def _built(
    name: str, entry: Any, split: randomness.Split, seed: int, members: range, max_steps: int | None
) -> VectorEnvironment:
    """The product of a user's function or class: a VectorEnvironment, or one environment to be played n times."""
    parts = ("reset", "step", "state", "restore", "close", "observations", "actions", "bounds")
    if callable(entry) and all(hasattr(entry, part) for part in parts):
        if max_steps is not None:
            problem, fix = "ends its own episodes, all members by itself", "leave it out, and truncate in its step"
            raise errors.ConfigError("spec.data.maxStepsPerEpisode", max_steps, problem, fix)
        environment: VectorEnvironment = entry(split, seed, members)
        return environment
    if not callable(entry):
        raise errors.ConfigError(FIELD, name, "is neither a class nor a function", "name one that makes an environment")
    sample = entry()
    if hasattr(sample, "agent_iter"):
        close(sample)
        fix = "name its parallel_env, or convert it by pettingzoo.utils.aec_to_parallel"
        raise errors.ConfigError(FIELD, name, "is a PettingZoo environment whose agents act in turns", fix)
    kind = TeamVector if hasattr(sample, "possible_agents") else GymnasiumVector
    close(sample)
    return kind(name, split, seed, members, entry, max_steps)


WORLDS: Mapping[str, Callable[[], ConversationWorld]] = {
    "ToolLookup-v1": ToolLookup,
    "ToolLookupEasy-v1": one_key,
    "ToolLookupGuarded-v1": guarded,
}
_FIX = f"name {' or '.join(WORLDS)}, or module:EntryPoint of a class with tools and begin(split, seed, number)"


def make_world(name: str) -> ConversationWorld:
    """The world of this name; raises ConfigError when there is none, or it is not a world for a language model."""
    entry: Any = WORLDS.get(name) or entry_point(name)
    if entry is None or not callable(entry):
        raise errors.ConfigError(FIELD, name, "is not a world for a language model", _FIX)
    try:
        world: Any = entry()
    except Exception as error:  # the user's own code runs here and may raise anything
        problem = f"cannot be made ({type(error).__name__}: {str(error)[:200]})"
        raise errors.ConfigError(FIELD, name, problem, "correct the class: it is called without arguments") from None
    if not callable(getattr(world, "begin", None)) or not isinstance(getattr(world, "tools", None), list | tuple):
        raise errors.ConfigError(FIELD, name, "has no tools or no begin(split, seed, number)", _FIX)
    made: ConversationWorld = world
    return made


def world_digest(name: str) -> str:
    """SHA-256 of the world's code; raises ConfigError as `make_world` does."""
    entry: Any = WORLDS.get(name) or entry_point(name)
    if entry is None:
        raise errors.ConfigError(FIELD, name, "is not a world for a language model", _FIX)
    return user_environment.code(entry, os.environ.get(ENV_ENVIRONMENT_DIRECTORY))
