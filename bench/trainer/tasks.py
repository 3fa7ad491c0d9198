"""The tasks to compare. "work": the same environments, network, batches, updates and steps on all sides; "solve": each
side with hyperparameters tuned for it (the peer's from RL Baselines3 Zoo, ours the product's defaults).
"""

from typing import Any

Task = dict[str, Any]
CARTPOLE: Task = {"environment": "CartPole-v1", "window": 100, "threshold": 475.0, "episodes": 100}
PENDULUM: Task = {"environment": "Pendulum-v1", "window": 10, "threshold": -250.0, "episodes": 100}

WORK: dict[str, Task] = {
    # CleanRL's hyperparameters for classic control.
    "ppo": CARTPOLE
    | {
        "algorithm": "ppo",
        "steps": 100_352,
        "ours": {
            "environments": 4,
            "horizon": 128,
            "epochs": 4,
            "minibatches": 4,
            "learningRate": 2.5e-4,
            "hidden": [64, 64],
        },
        "sb3": {
            "n_envs": 4,
            "n_steps": 128,
            "n_epochs": 4,
            "batch_size": 128,
            "learning_rate": 2.5e-4,
            "linear_rate": True,
            "ent_coef": 0.01,
            "hidden": [64, 64],
        },
    },
    # CleanRL's network, batch and one update per 10 steps; 10 environments, so that both sides act in batches.
    "dqn": CARTPOLE
    | {
        "algorithm": "dqn",
        "steps": 64_000,
        "ours": {
            "environments": 10,
            "stepsPerUpdate": 10,
            "batchSize": 128,
            "bufferSize": 10_000,
            "learningStarts": 1000,
            "targetUpdate": 50,
            "explorationFraction": 0.5,
            "epsilonEnd": 0.05,
            "learningRate": 1e-3,
            "hidden": [120, 84],
        },
        "sb3": {
            "n_envs": 10,
            "train_freq": 1,
            "gradient_steps": 1,
            "batch_size": 128,
            "buffer_size": 10_000,
            "learning_starts": 1000,
            "target_update_interval": 500,
            "exploration_fraction": 0.5,
            "exploration_final_eps": 0.05,
            "learning_rate": 1e-3,
            "linear_rate": True,
            "hidden": [120, 84],
        },
    },
    # The authors' network and batch, one update per step.
    "sac": PENDULUM
    | {
        "algorithm": "sac",
        "steps": 4_000,
        "ours": {"learningStarts": 500, "learningRate": 1e-3},
        "sb3": {"n_envs": 1, "learning_starts": 500, "learning_rate": 1e-3, "batch_size": 256, "hidden": [256, 256]},
    },
}

SOLVE: dict[str, Task] = {
    "ppo": CARTPOLE
    | {
        "algorithm": "ppo",
        "steps": 300_000,
        "ours": {},
        "sb3": {
            "n_envs": 8,
            "n_steps": 32,
            "n_epochs": 20,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "learning_rate": 1e-3,
            "linear_rate": True,
            "ent_coef": 0.0,
            "hidden": [64, 64],
        },
    },
    "dqn": CARTPOLE
    | {
        "algorithm": "dqn",
        "steps": {"ours": 100_000, "sb3": 50_000},  # what each side's hyperparameters are tuned for
        "threshold": 195.0,  # training episodes hold one random action in 25: few reach 475 before it ends
        "ours": {},
        "sb3": {
            "n_envs": 1,
            "train_freq": 256,
            "gradient_steps": 128,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "target_update_interval": 10,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "learning_rate": 2.3e-3,
            "hidden": [256, 256],
        },
    },
}
