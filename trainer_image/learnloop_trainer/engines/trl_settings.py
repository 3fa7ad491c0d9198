"""Settings of TRL's trainers: those that follow from a TrainingJob, those of its own, and those that are refused."""

import tempfile
from typing import Any

import torch
from pydantic.alias_generators import to_camel

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import errors
from learnloop_trainer import distributed, training_order
from learnloop_trainer.training_run import language_training

SETTINGS, PARAMETERS = "spec.settings", "spec.hyperparameters"
OURS = (
    "output_dir max_steps num_train_epochs seed save_strategy report_to resume_from_checkpoint push_to_hub use_cpu "
    "optim optim_args optim_target_modules adam_beta1 adam_beta2 adam_epsilon auto_find_batch_size shuffle_dataset "
    "train_sampling_strategy remove_unused_columns max_length truncation_mode packing padding_free "
    "assistant_only_loss completion_only_loss precompute_ref_log_probs"
)
FOLLOWING = (
    "learning_rate weight_decay lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio num_iterations "
    "per_device_train_batch_size num_generations steps_per_generation generation_batch_size "
    "temperature top_p top_k min_p repetition_penalty"
)
REFUSED = {
    **dict.fromkeys(OURS.split(), "is learnloop's own"),
    **dict.fromkeys(FOLLOWING.split(), "follows from hyperparameters and sampling"),
    **dict.fromkeys(("fsdp_config", "fsdp_version"), "is transformers' for accelerate, and fsdp: true needs none"),
    "deepspeed": "is not in the trainer's image, and fsdp: true shards the model, too",
}
"""Settings that would do nothing, or make the run's steps and proof untrue."""
HEEDED = "learning_rate learning_rate_schedule warmup max_gradient_norm weight_decay weights lora precision experience"
PAIRS = f"{HEEDED} recording batch_pairs"
PLAYED = f"{HEEDED} batch_episodes group_size epochs kl_coefficient"
READ = {
    "sft": f"{HEEDED} recording batch_episodes min_reward max_recorded_turns max_staleness",
    "dpo": f"{PAIRS} beta nll_coefficient",
    "bradley-terry": f"{PAIRS} held_out_share score_decay",
    "rloo": f"{PLAYED} ratio_cap",
    "grpo": f"{PLAYED} clip_low clip_high scale_by_deviation",
}
"""Hyperparameters that are heeded here."""
PARTS, SHARDED = "gradient_accumulation_steps", "fsdp"
Columns = dict[str, Any]


def size_of(parameters: Parameters) -> int:
    """Episodes or pairs of an update, of all ranks."""
    return int(getattr(parameters, "batch_pairs", 0) or parameters.batch_episodes)


def reuses_of(parameters: Parameters) -> int:
    """Steps of the optimiser by the same episodes or pairs."""
    return int(getattr(parameters, "epochs", 1))


def shards_of(order: training_order.Order, group: distributed.Group) -> Columns:
    """How transformers loads a model of which each rank holds a part; nothing where each holds it whole."""
    wanted = (order.spec.settings or {}).get(SHARDED, False)
    if not isinstance(wanted, bool):
        raise errors.ConfigError(f"{SETTINGS}.{SHARDED}", wanted, "is neither true nor false", "set true")
    if not wanted:
        return {}
    if group.place.size == 1:
        raise errors.ConfigError(f"{SETTINGS}.{SHARDED}", wanted, "shards a model over ranks", "set spec.workers")
    from transformers.distributed.configuration_utils import DistributedConfig

    return {"distributed_config": DistributedConfig(fsdp_size=group.place.size)}


def refuse_unheeded(order: training_order.Order) -> None:
    """Raises ConfigError for what no trainer of TRL heeds."""
    parameters, settings, algorithm = order.parameters, order.spec.settings or {}, order.spec.algorithm
    for name, default in parameters.algorithm.defaults.items():
        value = getattr(parameters, name)
        if name not in READ[algorithm].split() and value != default:
            fix = "remove it, find its like among TRL's settings, or set engine to own"
            raise errors.ConfigError(f"{PARAMETERS}.{to_camel(name)}", value, "is not heeded by engine trl", fix)
    source = language_training.source_of(order)
    if parameters.algorithm.plays and source != language_training.ROLLOUTS:
        problem = f"is not something that {algorithm} of engine trl learns from"
        raise errors.ConfigError(f"{PARAMETERS}.experience", source, problem, "set rollouts, or engine to own")
    for name in filter(REFUSED.__contains__, settings):
        raise errors.ConfigError(f"{SETTINGS}.{name}", settings[name], REFUSED[name], "remove it")
    parts = settings.get(PARTS, 1)
    if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1:
        raise errors.ConfigError(f"{SETTINGS}.{PARTS}", parts, "is not a whole number above 0", "correct it")


def arguments(order: training_order.Order, ranks: int, device: torch.device) -> Columns:
    """Settings of every trainer of TRL."""
    parameters, parts = order.parameters, (order.spec.settings or {}).get(PARTS, 1)
    share, rest = divmod(size_of(parameters), ranks * parts)
    if rest or not share:
        fix = f"make it a multiple of {ranks} ranks × {parts} parts"
        raise errors.ConfigError(PARAMETERS, size_of(parameters), "episodes of an update cannot be shared equally", fix)
    return {
        "output_dir": tempfile.gettempdir(),
        "per_device_train_batch_size": share,
        "max_grad_norm": parameters.max_gradient_norm,
        "bf16": parameters.precision == "bfloat16",
        "seed": order.spec.seed,
        "use_cpu": device.type == "cpu",
        "gradient_checkpointing": False,
        "train_sampling_strategy": "sequential",
        "remove_unused_columns": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
    }


def of_dpo(parameters: Parameters) -> Columns:
    more: Columns = {"beta": parameters.beta, "max_length": None}
    if parameters.nll_coefficient:
        more |= {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, parameters.nll_coefficient]}
    return more


def of_grpo(order: training_order.Order, ranks: int, context: int, shards: Columns) -> Columns:
    parameters, model = order.parameters, order.spec.data.language_model
    assert model is not None
    size = size_of(parameters)
    if size // ranks % parameters.group_size:
        fix = "make batchEpisodes a multiple of ranks × groupSize"
        raise errors.ConfigError(f"{PARAMETERS}.batchEpisodes", size, "divides a group among ranks", fix)
    more: Columns = {
        "num_generations": parameters.group_size,
        "num_iterations": reuses_of(parameters),
        "temperature": model.sampling.temperature,
        "max_completion_length": context,
        "beta": parameters.kl_coefficient,
        "shuffle_dataset": False,
    }
    if shards:  # of the reference that TRL loads
        more["model_init_kwargs"] = shards
    if order.spec.algorithm == "rloo":
        # r less the others' mean: the group's size times r less the mean of all
        others = max(1, parameters.group_size - 1)
        more |= {"scale_rewards": "none", "reward_weights": [parameters.group_size / others], "loss_type": "grpo"}
        return more | {"epsilon": 1.0, "epsilon_high": parameters.ratio_cap - 1}
    scale = "group" if parameters.scale_by_deviation else "none"
    return more | {"epsilon": parameters.clip_low, "epsilon_high": parameters.clip_high, "scale_rewards": scale}
