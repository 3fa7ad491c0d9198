"""From a name to a world that a language model talks to."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from learnloop_api.names import ENV_ENVIRONMENT_DIRECTORY
from learnloop_environments import own_code
from learnloop_environments.base import FIELD
from learnloop_environments.conversations.base import ConversationWorld
from learnloop_environments.conversations.tool_lookup import ToolLookup, guarded, one_key
from learnloop_environments.errors import ConfigError
from learnloop_environments.make import entry_point

WORLDS: Mapping[str, Callable[[], ConversationWorld]] = {
    "ToolLookup-v1": ToolLookup,
    "ToolLookupEasy-v1": one_key,
    "ToolLookupGuarded-v1": guarded,
}
FIX = f"name {' or '.join(WORLDS)}, or module:EntryPoint of a class with tools and begin(split, seed, number)"


def make_world(name: str) -> ConversationWorld:
    """The world of this name; raises ConfigError when there is none, or it is not a world for a language model."""
    entry: Any = WORLDS.get(name) or entry_point(name)
    if entry is None or not callable(entry):
        raise ConfigError(FIELD, name, "is not a world for a language model", FIX)
    try:
        world: Any = entry()
    except Exception as error:  # the user's own code runs here and may raise anything
        problem = f"cannot be made ({type(error).__name__}: {str(error)[:200]})"
        raise ConfigError(FIELD, name, problem, "correct the class: it is called without arguments") from None
    if not callable(getattr(world, "begin", None)) or not isinstance(getattr(world, "tools", None), list | tuple):
        raise ConfigError(FIELD, name, "has no tools or no begin(split, seed, number)", FIX)
    made: ConversationWorld = world
    return made


def world_digest(name: str) -> str:
    """SHA-256 of the world's code; raises ConfigError as `make_world` does."""
    entry: Any = WORLDS.get(name) or entry_point(name)
    if entry is None:
        raise ConfigError(FIELD, name, "is not a world for a language model", FIX)
    return own_code.code(entry, os.environ.get(ENV_ENVIRONMENT_DIRECTORY))
