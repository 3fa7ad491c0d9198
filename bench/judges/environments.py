"""All worlds that learnloop ships, before Stable-Baselines3's, Gymnasium's and PettingZoo's own checks."""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils import parallel_to_aec
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3

from bench.judges.cases import Suite, finish

ROOT = Path(__file__).parents[2]


def main() -> int:
    """1 when a suite has failures."""
    worlds = ROOT / "examples" / "worlds"
    sys.path += [str(worlds), str(worlds / "supply_chain")]
    from as_gymnasium import SIMULATIONS, Parallel

    single = [name for name, kind in SIMULATIONS.items() if not hasattr(kind, "agents")]
    team = [name for name, kind in SIMULATIONS.items() if hasattr(kind, "agents")]
    registered = {name: f"learnloop/{SIMULATIONS[name].__name__}-v1" for name in single}
    warnings.simplefilter("ignore")  # of infinite bounds of observations
    suites = [
        Suite("Stable-Baselines3, check_env", version("stable-baselines3")),
        Suite("Gymnasium, check_env", version("gymnasium")),
        Suite("PettingZoo, parallel_api_test, api_test, seed tests", version("pettingzoo")),
    ]
    for name, world in registered.items():
        if not isinstance(gymnasium.make(world).action_space, gymnasium.spaces.Tuple):  # Stable-Baselines3 has none
            with suites[0].case(name):
                check_env_of_sb3(gymnasium.make(world), skip_render_check=True)
        with suites[1].case(name):
            check_env(gymnasium.make(world).unwrapped, skip_render_check=True)
    for name in team:
        for check, expected in _checks(partial(Parallel, name)).items():
            with suites[2].case(f"{name}: {check}"):
                expected()
    return finish(*suites)


def _checks(make: Callable[[], Any]) -> dict[str, Callable[[], object]]:
    """PettingZoo's checks of one team, by name."""
    return {
        "parallel_api_test": lambda: parallel_api_test(make(), num_cycles=200),
        "parallel_seed_test": lambda: parallel_seed_test(make, num_cycles=50),
        "api_test": lambda: api_test(parallel_to_aec(make()), num_cycles=200),
        "seed_test": lambda: seed_test(lambda: parallel_to_aec(make()), num_cycles=50),
    }


if __name__ == "__main__":
    np.random.seed(0)
    sys.exit(main())
