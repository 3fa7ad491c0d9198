"""Worlds to compare in: the engine that fits, and Stable-Baselines3 with as many steps of the environment.

The peer's settings are those of RL Baselines3 Zoo where it has the world, else what the own engine's defaults are.
"""

from typing import Any

Task = dict[str, Any]

# The own engine's defaults of ppo, as Stable-Baselines3 spells them.
PPO: Task = {
    "n_envs": 64,
    "n_steps": 32,
    "n_epochs": 6,
    "batch_size": 256,
    "learning_rate": 2.5e-3,
    "linear_rate": True,
    "ent_coef": 0.01,
}
TEAM = PPO | {"n_envs": 16, "batch_size": 512, "learning_rate": 1e-3}
MOUNTAIN_CAR: Task = {
    "learning_rate": 4e-3,
    "batch_size": 128,
    "buffer_size": 10_000,
    "learning_starts": 1000,
    "gamma": 0.98,
    "target_update_interval": 600,
    "train_freq": 16,
    "gradient_steps": 8,
    "exploration_fraction": 0.2,
    "exploration_final_eps": 0.07,
    "policy_kwargs": {"net_arch": [256, 256]},
}
UPHILL: Task = {
    "normalize": True,
    "n_steps": 8,
    "batch_size": 8,
    "ent_coef": 0.00429,
    "learning_rate": 7.77e-5,
    "n_epochs": 10,
    "max_grad_norm": 5,
    "vf_coef": 0.19,
    "use_sde": True,
    "gae_lambda": 0.9,
    "gamma": 0.9999,
    "clip_range": 0.1,
    "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
}
CARTPOLE: Task = {
    "n_envs": 8,
    "n_steps": 32,
    "n_epochs": 20,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "learning_rate": 1e-3,
    "linear_rate": True,
    "ent_coef": 0.0,
}
ACROBOT: Task = {
    "normalize": True,
    "n_envs": 16,
    "n_steps": 256,
    "n_epochs": 4,
    "gae_lambda": 0.94,
    "ent_coef": 0.0,
}


def by_own(environment: str, algorithm: str, steps: int, ours: Task, sb3: Task, **more: Any) -> Task:
    return {
        "environment": environment,
        "engine": "own",
        "algorithm": algorithm,
        "steps": steps,
        "episodes": 100,
        "ours": ours,
        "sb3": sb3,
    } | more


def by_sb3(environment: str, algorithm: str, steps: int, settings: Task, **more: Any) -> Task:
    """Both sides have the same settings: what differs is learnloop's vectors, export and proof."""
    return by_own(environment, algorithm, steps, settings, settings, engine="sb3", **more)


WORLDS: dict[str, Task] = {
    "CartPole": by_own("CartPole-v1", "ppo", 60_000, {}, CARTPOLE),
    "Acrobot": by_own("Acrobot-v1", "ppo", 60_000, {}, ACROBOT),
    "MountainCar": by_sb3("MountainCar-v0", "dqn", 120_000, MOUNTAIN_CAR),
    "MountainCarContinuous": by_sb3("MountainCarContinuous-v0", "ppo", 20_000, UPHILL),
    "Pendulum": by_own("Pendulum-v1", "sac", 5_000, {"learningRate": 1e-3}, {"learning_rate": 1e-3}),
    "FrozenLake": by_own("FrozenLake-v1", "ppo", 60_000, {}, PPO),
    "Taxi": by_own("Taxi-v4", "ppo", 100_000, {}, PPO),
    "Blackjack": by_own("Blackjack-v1", "ppo", 60_000, {}, PPO, episodes=1000),
    "Exploration": by_own("grids:Exploration", "ppo", 60_000, {}, PPO),
    "Navigation": by_own("motion:Navigation", "ppo", 100_000, {}, PPO),
    "Manipulation": by_own("motion:Manipulation", "ppo", 60_000, {}, PPO),
    "SupplyChain": by_own("supply_chain:SupplyChain", "ppo", 100_000, {}, PPO, level="medium"),
    "Trading": by_own("markets:Trading", "ppo", 60_000, {}, PPO),
    "Trader": by_own("market:Trader", "ppo", 60_000, {}, PPO),
    "Resources": by_own("resources:Resources", "maddpg", 20_000, {}, TEAM, sb3_algorithm="ppo"),
    "Cooperative": by_own("teams:Cooperative", "independent-dqn", 40_000, {}, TEAM, sb3_algorithm="ppo"),
}
NIGHTLY: dict[str, Task] = {
    "LunarLander": by_own("LunarLander-v3", "ppo", 1_000_000, {}, PPO | {"gamma": 0.999, "gae_lambda": 0.98}),
    "HalfCheetah": by_own("HalfCheetah-v5", "sac", 300_000, {}, {}),
}
"""Hours; they need an image with gymnasium[box2d] and gymnasium[mujoco], and are left out where it has them not."""
