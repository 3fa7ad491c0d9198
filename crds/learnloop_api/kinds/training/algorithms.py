"""The table of algorithms: which hyperparameters each of them takes, with its defaults, and what it can learn.

The schema of spec.algorithm and spec.hyperparameters follows from it (recipe.py). The trainer's registry has the same
names.
"""

from typing import Any

from learnloop_api.kinds.training.hyperparameters import Algorithm, Curiosity, Defaults, Lora, Parameters

__all__ = ["ALGORITHMS", "Algorithm", "Curiosity", "Lora", "Parameters", "hyperparameters"]


def hyperparameters(algorithm: str, **given: Any) -> Parameters:
    """The hyperparameters of an algorithm: those given, and its defaults. Raises pydantic.ValidationError."""
    return ALGORITHMS[algorithm].model.model_validate(given)


OPTIMISER: Defaults = {
    "learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "warmup": 0.0,
    "max_gradient_norm": 10.0,
}
FROM_A_LOG: Defaults = OPTIMISER | {
    "recording": None,
    "max_recorded_steps": 100_000,
    "environments": 1,
    "hidden": [64, 64],
    "batch_size": 256,
}
OFFLINE: Defaults = FROM_A_LOG | {"discount": 0.99, "target_rate": 0.005, "hidden": [128, 128]}
REPLAY: Defaults = OPTIMISER | {
    "discount": 0.99,
    "environments": 16,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 1000,
    "steps_per_update": 16,
    "hidden": [64, 64],
}
REMEMBERING: Defaults = {"local_batch_size": 32, "memory_batch_size": 32, "max_recorded_steps": 100_000}
EPSILON_GREEDY: Defaults = REPLAY | {
    "target_update": 100,
    "epsilon_start": 1.0,
    "epsilon_end": 0.05,
    "exploration_fraction": 0.5,
}
LANGUAGE_MODEL: Defaults = OPTIMISER | {
    "learning_rate": 1e-4,
    "max_gradient_norm": 1.0,
    "weight_decay": 0.0,
    "weights": "lora",
    "lora": Lora(),
    "precision": "float32",
    "tokens_per_batch": 16_384,
    "experience": None,
    "recording": None,
    "max_recorded_turns": 100_000,
    "max_staleness": 2,
    "group_size": 8,
}
POLICY_GRADIENT: Defaults = LANGUAGE_MODEL | {
    "batch_episodes": 128,
    "recorded_share": 0.5,
    "epochs": 1,
    "minibatches": 1,
    "ratio_cap": 2.0,
    "sequence_ratio_limit": 2.0,
    "kl_coefficient": 0.01,
    "entropy_coefficient": 0.0,
}

_ALL: tuple[Algorithm, ...] = (
    # Schulman et al., 2017, arXiv 1707.06347
    Algorithm(
        "ppo",
        "proximal policy optimisation",
        OPTIMISER
        | {
            "learning_rate": 2.5e-3,
            "discount": 0.99,
            "gae_lambda": 0.95,
            "clip": 0.2,
            "clip_end": None,
            "dual_clip": None,
            "lagrangian_learning_rate": None,
            "entropy_coefficient": 0.01,
            "value_coefficient": 0.5,
            "max_gradient_norm": 0.5,
            "normalise_observations": False,
            "environments": 64,
            "horizon": 32,
            "epochs": 6,
            "minibatches": 8,
            "hidden": [64, 64],
        },
        acts=("discrete", "continuous", "hybrid"),
        engines=("own", "sb3"),
    ),
    # Mnih et al., 2015; double targets: van Hasselt et al., 2016
    Algorithm(
        "dqn",
        "deep Q-learning with double targets",
        EPSILON_GREEDY
        | REMEMBERING
        | {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "steps_per_update": 8,
            "target_update": 64,
            "epsilon_end": 0.04,
            "exploration_fraction": 0.16,
            "prioritized": False,
            "priority_exponent": 0.6,
            "importance_start": 0.4,
            "curiosity": None,
            "hidden": [120, 84],
        },
        acts=("discrete",),
        values_actions=True,
        engines=("own", "sb3"),
    ),
    # Haarnoja et al., 2018, arXiv 1812.05905
    Algorithm(
        "sac",
        "soft actor-critic, for continuous actions",
        REPLAY
        | REMEMBERING
        | {
            "learning_rate_schedule": "constant",
            "max_gradient_norm": None,
            "environments": 1,
            "batch_size": 256,
            "buffer_size": 100_000,
            "steps_per_update": 1,
            "target_rate": 0.005,
            "initial_temperature": 1.0,
            "target_entropy_scale": 1.0,
            "hidden": [256, 256],
        },
        acts=("continuous",),
        engines=("own", "sb3"),
    ),
    Algorithm(
        "bc",
        "behaviour cloning from recorded experience",
        FROM_A_LOG,
        acts=("discrete", "continuous"),
        from_log=True,
    ),
    # Tan, 1993
    Algorithm(
        "independent-dqn",
        "each agent of a team learns for itself",
        EPSILON_GREEDY,
        acts=("discrete",),
        team=True,
        values_actions=True,
    ),
    # Rashid et al., 2018, arXiv 1803.11485
    Algorithm(
        "qmix",
        "one monotonic value for a team",
        EPSILON_GREEDY | {"embedding": 32},
        acts=("discrete",),
        team=True,
        values_actions=True,
    ),
    # Lowe et al., 2017, arXiv 1706.02275
    Algorithm(
        "maddpg",
        "central critics for a team, for continuous actions",
        REPLAY
        | {
            "actor_learning_rate": 5e-4,
            "target_rate": 0.01,
            "noise_start": 0.4,
            "noise_end": 0.05,
            "centralized": True,
        },
        acts=("continuous", "hybrid"),
        team=True,
    ),
    # Kulkarni et al., 2016, arXiv 1604.06057
    Algorithm(
        "hierarchical-dqn",
        "landmarks above, actions below",
        EPSILON_GREEDY | {"controller_discount": 0.9, "option_steps": 20},
        acts=("discrete",),
        values_actions=True,
    ),
    # Finn et al., 2017, arXiv 1703.03400, over the tasks in data.randomise
    Algorithm(
        "maml",
        "meta-learning over a family of tasks",
        OPTIMISER
        | {
            "learning_rate": 3e-3,
            "adaptation_rate": 0.1,
            "adaptation_steps": 1,
            "episodes": 10,
            "environments": 200,
            "discount": 0.99,
            "first_order": False,
            "max_gradient_norm": 1.0,
            "hidden": [64, 64],
        },
        acts=("continuous",),
    ),
    # Kumar et al., 2020, arXiv 2006.04779
    Algorithm(
        "cql",
        "conservative Q-learning from recorded experience alone",
        OFFLINE | {"conservatism": 1.0},
        acts=("discrete",),
        from_log=True,
        values_actions=True,
    ),
    # Kostrikov et al., 2021, arXiv 2110.06169
    Algorithm(
        "iql-offline",
        "implicit Q-learning from recorded experience alone",
        OFFLINE | {"expectile": 0.7, "inverse_temperature": 1.0},
        acts=("discrete", "continuous", "hybrid"),
        from_log=True,
        spreads=True,
    ),
    Algorithm(
        "sft",
        "supervised fine-tuning of a language model on demonstrations",
        LANGUAGE_MODEL | {"learning_rate": 2e-4, "batch_episodes": 32, "min_reward": None},
        language=True,
        engines=("own", "trl"),
    ),
    # Rafailov et al., 2023, arXiv 2305.18290, with a likelihood term
    Algorithm(
        "dpo",
        "direct preference optimisation of a language model",
        LANGUAGE_MODEL | {"learning_rate": 5e-5, "batch_pairs": 32, "beta": 0.1, "nll_coefficient": 0.2},
        language=True,
        engines=("own", "trl"),
    ),
    # Ahmadian et al., 2024, arXiv 2402.14740
    Algorithm(
        "rloo",
        "REINFORCE of a language model, the task's other conversations as baseline",
        POLICY_GRADIENT,
        language=True,
        engines=("own", "trl"),
        plays=True,
    ),
    # Shao et al., 2024, arXiv 2402.03300
    Algorithm(
        "grpo",
        "group-relative policy optimisation of a language model",
        POLICY_GRADIENT | {"clip_low": 0.2, "clip_high": 0.28, "scale_by_deviation": True},
        language=True,
        engines=("own", "trl"),
        plays=True,
    ),
    # arXiv 1707.06347 over tokens, with a value head on the model
    Algorithm(
        "ppo-lm",
        "proximal policy optimisation of a language model, by token",
        POLICY_GRADIENT
        | {
            "group_size": 1,
            "epochs": 2,
            "minibatches": 2,
            "clip_low": 0.2,
            "clip_high": 0.2,
            "value_coefficient": 0.1,
            "value_clip": 0.2,
            "discount": 1.0,
            "gae_lambda": 0.98,
        },
        language=True,
        plays=True,
    ),
    # Bradley & Terry, 1952
    Algorithm(
        "bradley-terry",
        "a reward model that scores answers, from people's preferences",
        LANGUAGE_MODEL | {"batch_pairs": 32, "held_out_share": 0.2, "score_decay": 0.001},
        language=True,
        engines=("own", "trl"),
        scores_answers=True,
    ),
    Algorithm("a2c", "advantage actor-critic", {}, acts=("discrete", "continuous"), engines=("sb3",)),
    Algorithm("td3", "twin delayed deterministic policy gradient", {}, acts=("continuous",), engines=("sb3",)),
    Algorithm("ddpg", "deep deterministic policy gradient", {}, acts=("continuous",), engines=("sb3",)),
    Algorithm("qr-dqn", "quantile DQN", {}, acts=("discrete",), values_actions=True, engines=("sb3",)),
    Algorithm("tqc", "truncated quantile critics", {}, acts=("continuous",), engines=("sb3",)),
    Algorithm("crossq", "SAC with batch normalisation", {}, ("continuous",), engines=("sb3",), networks=("MlpPolicy",)),
    Algorithm("trpo", "trust region policy optimisation", {}, acts=("discrete", "continuous"), engines=("sb3",)),
    Algorithm(
        "ars", "augmented random search", {}, ("discrete", "continuous"), engines=("sb3",), networks=("MlpPolicy",)
    ),
    Algorithm("recurrent-ppo", "PPO with an LSTM", {}, acts=("discrete", "continuous"), engines=("sb3",)),
    Algorithm("maskable-ppo", "PPO that never takes what is masked", {}, acts=("discrete",), engines=("sb3",)),
    Algorithm("custom", "what the program of pod.command trains", {}, engines=("image",)),
)

ALGORITHMS: dict[str, Algorithm] = {one.name: one for one in _ALL}
assert len(ALGORITHMS) == len(_ALL), "two algorithms have the same name"

LANGUAGE = tuple(one.name for one in _ALL if one.language)
"""Train language models; the others train policies of numbers."""
REWARD_MODELS = tuple(one.name for one in _ALL if one.scores_answers)
"""Make models that score answers and give none: an agent cannot serve them."""
FROM_LOG = tuple(one.name for one in _ALL if one.from_log)
"""Take no step in an environment: they learn where there is none."""
OWN = tuple(one.name for one in _ALL if "own" in one.engines)
"""Algorithms of learnloop's own learners; the others are an engine's alone."""
READS_LOG = tuple(one.name for one in _ALL if one.from_log or one.language or one.remembers_log or one.name == "custom")
"""Can learn from what an agent has logged, alone or mixed with their own steps."""
