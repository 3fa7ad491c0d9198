"""The tasks to compare. Networks as wide as the library's defaults, and wide ones, for which a GPU is bought."""

from typing import Any

from bench.trainer.tasks import CARTPOLE, PENDULUM

Task = dict[str, Any]


def _ppo(steps: int, hidden: list[int], environments: int, minibatches: int) -> Task:
    horizon = 128
    ours = {"environments": environments, "horizon": horizon, "epochs": 4, "minibatches": minibatches}
    peers = {"n_envs": environments, "n_steps": horizon, "n_epochs": 4, "ent_coef": 0.01, "linear_rate": True}
    batch = environments * horizon // minibatches
    return CARTPOLE | {
        "algorithm": "ppo",
        "steps": steps,
        "ours": {**ours, "learningRate": 2.5e-4, "hidden": hidden},
        "sb3": {**peers, "batch_size": batch, "learning_rate": 2.5e-4, "hidden": hidden},
    }


def _sac(steps: int, hidden: list[int], batch: int) -> Task:
    return PENDULUM | {
        "algorithm": "sac",
        "steps": steps,
        "ours": {"learningStarts": 500, "learningRate": 1e-3, "batchSize": batch, "hidden": hidden},
        "sb3": {"n_envs": 1, "learning_starts": 500, "learning_rate": 1e-3, "batch_size": batch, "hidden": hidden},
    }


TASKS: dict[str, Task] = {
    "ppo 2 x 64": _ppo(32_768, [64, 64], 16, 4),
    "ppo 3 x 1024": _ppo(65_536, [1024, 1024, 1024], 64, 4),
    "sac 2 x 256": _sac(1_000, [256, 256], 256),
    "sac 3 x 1024": _sac(1_000, [1024, 1024, 1024], 1024),
}
"""By name: equal work on all sides."""

# HuggingFaceTB/SmolLM2-135M's config.json.
SHAPE: dict[str, int] = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
}
"""Of the language model, whose weights are random: what is measured is speed, not what it says."""
CONTEXT, MOST_TOKENS, GROUP = 384, 64, 8
EPISODES, ROUNDS = 64, 3
"""Of a round, and rounds that the GPU is measured by, after a first one."""
