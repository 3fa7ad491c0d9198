"""The worlds of this folder and of supply_chain/ as Gymnasium environments, vectorised and PettingZoo parallel ones.

`gymnasium.make("learnloop/Navigation-v1")` after importing this module, `gymnasium.make_vec` likewise (the native
arrays, no loop); `Parallel("teams:Cooperative")` has PettingZoo's parallel interface.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from grids import DeepSea, Exploration, KeyDoor
from learnloop_environments.randomness import Split
from learnloop_environments.simulation import Conditions, Simulation, TeamSimulation
from learnloop_environments.spaces import ActionSpace, Step
from markets import Trading
from motion import Courier, Manipulation, Navigation, PointGoals
from supply_chain import SupplyChain
from teams import Cooperative, CooperativeContinuous, CooperativeHybrid, Relay, RelayHybrid, TwoStep

KINDS: tuple[type[Simulation], ...] = (
    Cooperative,
    CooperativeContinuous,
    CooperativeHybrid,
    Courier,
    DeepSea,
    Exploration,
    KeyDoor,
    Manipulation,
    Navigation,
    PointGoals,
    Relay,
    RelayHybrid,
    SupplyChain,
    Trading,
    TwoStep,
)
SIMULATIONS = {f"{kind.__module__}:{kind.__name__}": kind for kind in KINDS}
"""By their names in `spec.data.environment`."""


def _spaces(simulation: type[Simulation]) -> tuple[Box, Space[Any]]:
    """Observation and action of one who acts."""
    box = Box(-np.inf, np.inf, (simulation.observations,), np.float32)
    return box, ActionSpace(simulation.actions, simulation.bounds).gymnasium()


def _flat(simulation: type[Simulation], action: Any) -> NDArray[Any]:
    """Gymnasium's action, or n of them, as the simulation takes it: a choice and its numbers side by side."""
    if simulation.bounds is None or not simulation.bounds.choices:
        return np.asarray(action)
    choice, numbers = action
    return np.concatenate((np.asarray(choice, dtype=np.float32)[..., None], numbers), axis=-1)


def _begin(name: str, level: str | None, seed: int, count: int) -> Simulation:
    return SIMULATIONS[name](Split.TRAINING, seed, range(count), Conditions(level=level))


class Single(gymnasium.Env[Any, Any]):
    """One simulation behind Gymnasium's interface; `is_success` and the world's counts in the info of its steps."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium reads it as a plain dictionary

    def __init__(self, simulation: str, level: str | None = None, render_mode: str | None = None) -> None:
        """`simulation`: a name among SIMULATIONS."""
        self.observation_space, self.action_space = _spaces(SIMULATIONS[simulation])
        self.render_mode = render_mode
        self._name, self._level = simulation, level
        self._inner: Simulation | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new episode; with a seed, always the same one."""
        super().reset(seed=seed)
        self._inner = _begin(self._name, self._level, int(self.np_random.integers(2**31)), 1)
        return self._inner.reset()[0], {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._inner is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        step = self._inner.step(_flat(SIMULATIONS[self._name], action)[None])
        success = step.success is not None and bool(step.success[0])
        ends = bool(step.terminated[0]), bool(step.truncated[0])
        counts = {name: float(count[0]) for name, count in step.values.items()}
        return step.successor[0], float(step.reward[0]), *ends, {"is_success": success, **counts}


class Many(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """n simulations behind Gymnasium's vector interface; an episode that ends is reset within the step."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as above

    def __init__(self, simulation: str, num_envs: int = 1, level: str | None = None, **_: Any) -> None:
        """`simulation`: a name among SIMULATIONS."""
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces(SIMULATIONS[simulation])
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._name, self._level = simulation, level
        self._inner: Simulation | None = None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """New episodes; of a list of seeds the first one counts for all."""
        first = seed[0] if isinstance(seed, list) else seed
        super().reset(seed=first)
        self._inner = _begin(self._name, self._level, int(self.np_random.integers(2**31)), self.num_envs)
        return self._inner.reset(), {}

    def step(
        self, actions: Any
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Final observations as with AutoresetMode.SAME_STEP."""
        if self._inner is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        step = self._inner.step(_flat(SIMULATIONS[self._name], actions))
        return step.observation, step.reward, step.terminated, step.truncated, self._final(step)

    def _final(self, step: Step) -> dict[str, Any]:
        ended = step.terminated | step.truncated
        if not ended.any():
            return {}
        final = np.full(self.num_envs, None, dtype=object)
        for n in np.flatnonzero(ended):
            final[n] = step.successor[n]
        return {"final_obs": final, "_final_obs": ended, "is_success": step.success}


class Parallel:
    """One team behind PettingZoo's parallel interface; the team's state is all observations together."""

    render_mode: str | None = None

    def __init__(self, simulation: str, level: str | None = None, credit: str = "team") -> None:
        """`simulation`: the name of a team among SIMULATIONS; raises ValueError when it is not a team."""
        kind = SIMULATIONS[simulation]
        if not issubclass(kind, TeamSimulation):
            raise ValueError(f"{simulation} has no team: make it with gymnasium.make")
        self.metadata = {"name": simulation, "render_modes": []}
        self.possible_agents = [f"agent_{number}" for number in range(kind.agents)]
        self.agents: list[str] = []
        self._kind, self._conditions = kind, Conditions(level=level, credit=credit)
        spaces = {agent: _spaces(kind) for agent in self.possible_agents}
        self.observation_spaces = {agent: space[0] for agent, space in spaces.items()}
        self.action_spaces = {agent: space[1] for agent, space in spaces.items()}
        self._random = np.random.default_rng()
        self._inner: Simulation | None = None
        self._observed = np.zeros((kind.agents, kind.observations), dtype=np.float32)

    @property
    def unwrapped(self) -> "Parallel":
        """Itself."""
        return self

    @property
    def num_agents(self) -> int:
        """How many take part now."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """How many can take part."""
        return len(self.possible_agents)

    def observation_space(self, agent: str) -> Box:
        """The same object at each call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        """The same object at each call."""
        return self.action_spaces[agent]

    def _by_agent(self, values: NDArray[Any]) -> dict[str, Any]:
        return dict(zip(self.possible_agents, values, strict=True))

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A new episode; with a seed, always the same one."""
        del options
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._inner = self._kind(Split.TRAINING, int(self._random.integers(2**31)), range(1), self._conditions)
        self.agents, self._observed = list(self.possible_agents), self._inner.reset()[0]
        return self._by_agent(self._observed), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], Any]:
        """Actions of all agents; observations, rewards, terminations, truncations and infos by agent."""
        if self._inner is None or not self.agents:
            raise RuntimeError("the episode is over: call reset before the next step")
        step = self._inner.step(np.stack([_flat(self._kind, actions[agent]) for agent in self.agents])[None])
        self._observed = step.successor[0]
        success = step.success is not None and bool(step.success[0])
        over, late = (dict.fromkeys(self.agents, bool(flag[0])) for flag in (step.terminated, step.truncated))
        rewards = {agent: float(reward) for agent, reward in self._by_agent(step.reward[0]).items()}
        if step.terminated[0] or step.truncated[0]:
            self.agents = []
        counts = {name: float(count[0]) for name, count in step.values.items()}
        infos = {agent: {"is_success": success, **counts} for agent in over}
        return self._by_agent(self._observed), rewards, over, late, infos

    def state(self) -> NDArray[np.float32]:
        """The view of a central critic: all observations, one after another."""
        return self._observed.reshape(-1)

    def render(self) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        """Nothing to release."""


def register() -> None:
    """Tell Gymnasium all simulations of a single agent, as `learnloop/<name>`."""
    for name, kind in SIMULATIONS.items():
        if not issubclass(kind, TeamSimulation):
            gymnasium.register(
                id=f"learnloop/{kind.__name__}-v1",
                entry_point=f"{__name__}:Single",
                vector_entry_point=f"{__name__}:Many",
                kwargs={"simulation": name},
            )


register()
