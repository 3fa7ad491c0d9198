"""Algorithms, policies and spaces that fit together in engine `sb3`, and observations as its policies take them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Space
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import ALGORITHMS
from learnloop_environments.errors import ConfigError
from learnloop_environments.interfaces.foreign_spaces import Part, parts
from learnloop_environments.spaces import FIELD, ActionSpace, Observations, VectorEnvironment
from learnloop_environments.wrappers import innermost

MASK = "action_mask"
"""Part of an observation: 1 for each choice that is allowed, as PettingZoo has it."""
MLP, CNN, MULTI = "MlpPolicy", "CnnPolicy", "MultiInputPolicy"
NETWORK = "spec.settings.policy"
SIDE = 36
"""Pixels of an image's smaller side at least, for the convolutions of CnnPolicy."""


@dataclass(frozen=True, slots=True)
class Form:
    """How rows become what a policy of Stable-Baselines3 takes."""

    network: str
    width: int
    parts: tuple[Part, ...]
    mask: Part | None = None

    @property
    def space(self) -> Space[Any]:
        if self.network == MLP:
            return Box(-np.inf, np.inf, (self.width,), np.float32)
        spaces: dict[str, Space[Any]] = {one.name: _space(one) for one in self.parts}
        return spaces[self.parts[0].name] if self.network == CNN else Dict(spaces)

    @property
    def numbers(self) -> list[str]:
        """Parts that are normalised: neither images nor a mask."""
        return [one.name for one in self.parts if one.shape is None and one is not self.mask]

    def take(self, rows: Observations) -> Any:
        """An array [n, …], or one for each part by its name."""
        if self.network == MLP:
            return rows
        members = {one.name: _array(one, rows) for one in self.parts}
        return members[self.parts[0].name] if self.network == CNN else members

    def split(self, rows: torch.Tensor) -> Any:
        """As `take`, of tensors."""
        if self.network == MLP:
            return rows
        members = {
            one.name: rows[:, one.at : one.end]
            if one.shape is None
            else rows[:, one.at : one.end].reshape(-1, *_shape(one)).permute(0, *_channels_first(one))
            for one in self.parts
        }
        return members[self.parts[0].name] if self.network == CNN else members

    def around(self, middle: Observations, spread: Observations, count: int, seed: int) -> Observations:
        """Rows to compare networks on: numbers near `middle`, any pixels, and masks that allow at least one choice."""
        random = np.random.default_rng(seed)
        rows = middle + spread * random.standard_normal((count, self.width))
        for one in self.parts:
            size = one.end - one.at
            if one.shape is not None:
                rows[:, one.at : one.end] = random.integers(0, 256, (count, size))
            elif one is self.mask:
                allowed = random.random((count, size)) < 0.5
                allowed[np.arange(count), random.integers(0, size, count)] = True
                rows[:, one.at : one.end] = allowed
        return np.asarray(rows, dtype=np.float32)


def _shape(part: Part) -> tuple[int, ...]:
    assert part.shape is not None
    return (*part.shape, 1) if len(part.shape) == 2 else part.shape


def _space(part: Part) -> Box:
    if part.shape is None:
        return Box(-np.inf, np.inf, (part.end - part.at,), np.float32)
    return Box(0, 255, [_shape(part)[axis - 1] for axis in _channels_first(part)], np.uint8)


def _array(part: Part, rows: Observations) -> NDArray[Any]:
    some = rows[:, part.at : part.end]
    if part.shape is None:
        return some
    return some.reshape(-1, *_shape(part)).astype(np.uint8).transpose(0, *_channels_first(part))


def _channels_first(part: Part) -> tuple[int, int, int]:
    """Axes of an image in the order of torch: Stable-Baselines3's own turning does not reach its replay buffers."""
    first, second, third = _shape(part)
    return (1, 2, 3) if first <= min(second, third) else (3, 1, 2)


def form_of(name: str, algorithm: str, settings: Mapping[str, Any], environment: VectorEnvironment) -> Form:
    """The form of what the environment `name` shows; raises ConfigError for what does not fit together."""
    table = ALGORITHMS[algorithm]
    actions = ActionSpace.of(environment)
    if actions.type not in table.acts:
        fitting = [one.name for one in ALGORITHMS.values() if "sb3" in one.engines and actions.type in one.acts]
        fix = f"set algorithm to {', '.join(fitting)}" if fitting else "set algorithm to ppo of engine own"
        raise ConfigError(
            FIELD, name, f"has {actions.type} actions, which {algorithm} of engine sb3 does not take", fix
        )
    space = getattr(innermost(environment), "space", None)
    width = environment.observations
    shown = parts(space) if space is not None else [Part("", 0, width, None)]
    shown = [Part(one.name or "observation", one.at, one.end, one.shape) for one in shown]
    pixels = any(one.shape is not None for one in shown)
    usual = MLP if not pixels else CNN if len(shown) == 1 else MULTI
    network = settings.get("policy", usual)
    if network not in table.networks:
        problem = (
            f"is not a policy of {algorithm} of engine sb3{'' if 'policy' in settings else ', and images need it'}"
        )
        raise ConfigError(NETWORK, network, problem, f"set it to {' or '.join(table.networks)}, or change algorithm")
    if network == CNN and (len(shown) > 1 or not pixels):
        problem = f"sees one image and nothing else, and {name} shows {', '.join(one.name for one in shown)}"
        raise ConfigError(NETWORK, network, problem, f"set it to {MULTI if pixels else MLP}")
    for one in shown if network != MLP else ():
        if one.shape is not None and (len(one.shape) > 3 or min(_space(one).shape[1:]) < SIDE):
            problem = f"shows {one.name} as an image of {' × '.join(map(str, one.shape))}, which {network} cannot see"
            fix = f"have two or three dimensions, {SIDE} × {SIDE} at least, or set settings.policy to {MLP}"
            raise ConfigError(FIELD, name, problem, fix)
    mask = next((one for one in shown if one.name == MASK), None)
    if algorithm == "maskable-ppo" and (mask is None or mask.end - mask.at != environment.actions):
        problem = f"shows no {MASK} of {environment.actions} numbers, so no server would know what is allowed"
        fix = f"have its observation be a Dict with {MASK}, 1 for each allowed choice, or set algorithm to ppo"
        raise ConfigError(FIELD, name, problem, fix)
    named = [replace(one, name=f"p{at}") for at, one in enumerate(shown)]  # torch has no layer "a.b" nor "keys"
    masked = named[shown.index(mask)] if mask is not None and algorithm == "maskable-ppo" else None
    return Form(network, width, tuple(named), masked)
