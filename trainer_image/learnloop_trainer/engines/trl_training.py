"""Engine `trl`: language models by TRL's trainers, on the data and under the proof of learnloop's own learners.

TRL trains the network that the session holds, so its checkpoints, its initial weights and its proof are those of engine
own. A scorer, or shards by FSDP2, it trains apart and copies back. Rows of tokens come from the run's experience by
collators of ours: no text is encoded again.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import numpy as np
import torch
from pydantic.alias_generators import to_camel
from torch.distributed.tensor import DTensor, distribute_tensor

from learnloop_environments import errors, randomness
from learnloop_trainer import baseline_policy, distributed, saver_and_stopper, training_order
from learnloop_trainer.language import lora, rows, sampler
from learnloop_trainer.language.algorithms.sft_dpo_bradley_terry import BradleyTerry, Dpo, Sft, numbers
from learnloop_trainer.neural.schedules import step_size
from learnloop_trainer.training_run import language_training

CHUNK_SECONDS, CHUNK_MEMBERS = 15.0, 16_384
"""A session saves and looks for a signal between two calls of train(), each on so many episodes or pairs at most."""
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
CURVES = {"loss": "loss", "grad_norm": "gradient_norm", "kl": "kl", "entropy": "entropy", "rewards/won/mean": "reward"}
PARTS, SHARDED = "gradient_accumulation_steps", "fsdp"
IGNORED = -100
Columns = dict[str, Any]
Examples = Sequence[Mapping[str, int]]


def begin(order: training_order.Order, group: distributed.Group, device: torch.device, store: Any) -> "TrlTraining":
    """See language_training.begin_language; raises ConfigError for what no trainer of TRL heeds."""
    _refuse_unheard(order)
    if group.place.size > 1:  # accelerate then joins the group that the ranks have formed
        os.environ["LOCAL_RANK"] = str(device.index or 0)
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = group.place.master, str(group.place.port)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    shards = _shards(order, group)
    own = language_training.begin_language(order, group, torch.device("cpu") if shards else device, store)
    held = {one.name: getattr(own, one.name) for one in fields(own)}
    return TrlTraining(**held | {"title": f"TRL: {own.title}"}, order=order, group=group, device=device, shards=shards)


def _shards(order: training_order.Order, group: distributed.Group) -> Columns:
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


def _refuse_unheard(order: training_order.Order) -> None:
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


@dataclass(slots=True, kw_only=True)
class TrlTraining(language_training.LanguageTraining):
    """A training whose updates TRL makes, all by one trainer: another would load its reference and patch the model."""

    order: training_order.Order
    group: distributed.Group
    device: torch.device
    shards: Columns
    """Of the model that learns, as transformers loads it; the session's is whole, and waits in the host's memory."""
    trainer: Any = None
    lessons: Sequence[Any] = ()
    """Rows or pairs; none where conversations are held."""
    apart: Any = None
    """A scorer, or shards, that TRL trains in place of the session's model."""

    def iterate(self, session: saver_and_stopper.Run) -> None:
        """Updates for CHUNK_SECONDS, or to the end. Collective."""
        if self.trainer is None:
            self.trainer = self._made()
            self.trainer.remove_callback(import_module("transformers").PrinterCallback)
        trainer, learner, size = self.trainer, self.learner, self.size
        left = -(-(self.order.spec.total_steps - learner.step) // size)
        updates = min(left, max(1, CHUNK_MEMBERS // size))
        trainer.args.max_steps = updates * self.reuses
        if self.lessons:
            drawn = numbers(len(self.lessons), updates * size, learner.step, self.order.spec.seed)
            trainer.train_dataset = _dataset({"number": drawn})
        else:
            groups = size // learner.parameters.group_size
            first = learner.step // size * groups
            trainer.train_dataset = _dataset({"prompt": [str(first + at) for at in range(updates * groups)]})
        progress = _callback(self, session)
        trainer.add_callback(progress)
        learner.network.model.train()
        trainer.train()
        learner.network.model.eval()
        trainer.remove_callback(progress)
        if self.apart is not None:
            self._exchange(back=True)
        with torch.no_grad():  # ranks that reduce gradients have given the weights memory of their own
            parts = [part.detach().float().reshape(-1) for part in learner.network.trainable.values()]
            learner.network.vector.copy_(torch.cat(parts))
        if self.shards and learner.step >= self.order.spec.total_steps:
            self.trainer = self.apart = None
            learner.network.place(self.device)  # for the proof

    @property
    def size(self) -> int:
        """Episodes or pairs of an update, of all ranks."""
        parameters = self.learner.parameters
        return int(getattr(parameters, "batch_pairs", 0) or parameters.batch_episodes)

    @property
    def reuses(self) -> int:
        """Steps of the optimiser by the same episodes or pairs."""
        return int(getattr(self.learner.parameters, "epochs", 1))

    def _made(self) -> Any:
        """TRL's trainer; its first data are an example, of which it wants the form."""
        trl: Any = import_module("trl")  # it names its trainers when they are asked for
        learner, model = self.learner, self.learner.network.model
        more: Columns = {"max_length": None}
        form: Columns
        given: Columns = {"data_collator": self._pairs}
        if self.shards or isinstance(learner, BradleyTerry):
            model = self.apart = self._loaded_apart()
        if isinstance(learner, Sft):
            self.lessons = [row for episode in learner._fetched() for row in episode.rows if row.sampled.any()]
            kind, config = trl.SFTTrainer, trl.SFTConfig
            form, given = {"input_ids": [0], "labels": [0]}, {"data_collator": self._demonstrations}
        elif isinstance(learner, Dpo):
            self.lessons, kind, config, more = learner._fetched(), trl.DPOTrainer, trl.DPOConfig, self._dpo()
            form = dict.fromkeys(("prompt", "chosen", "rejected"), self.base.tokeniser.decode([0, 1]))
            given["ref_model"] = self._loaded("AutoModelForCausalLM")
        elif isinstance(learner, BradleyTerry):
            self.lessons, kind, config = learner.pairs.learned, trl.RewardTrainer, trl.RewardConfig
            more["center_rewards_coefficient"] = learner.parameters.score_decay
            more["pad_token"] = self._padding(self.lessons)
            form = {"chosen_ids": [0], "rejected_ids": [0]}
        else:
            kind, config, more, form = trl.GRPOTrainer, trl.GRPOConfig, self._grpo(), {"prompt": "0"}
            given = {"rollout_func": self._rollout, "reward_funcs": _won}
        given |= {"processing_class": deepcopy(self.base.tokeniser), "optimizers": self._optimisers(model)}
        given["train_dataset"] = _dataset({name: [value] for name, value in form.items()})
        maker, settings = config, {**(self.order.spec.settings or {})}
        settings.pop(SHARDED, None)
        try:
            arguments = config(**self._arguments() | more | settings)
            maker = kind
            return kind(model=model, args=arguments, **given)
        except (ImportError, NotImplementedError, TypeError, ValueError) as error:
            problem = f"are refused by {maker.__name__}: {' '.join(str(error).split())[:300]}"
            raise errors.ConfigError(SETTINGS, settings, problem, "correct them") from None

    def _arguments(self) -> Columns:
        parameters, parts = self.learner.parameters, (self.order.spec.settings or {}).get(PARTS, 1)
        ranks = self.group.place.size
        share, rest = divmod(self.size, ranks * parts)
        if rest or not share:
            fix = f"make it a multiple of {ranks} ranks × {parts} parts"
            raise errors.ConfigError(PARAMETERS, self.size, "episodes of an update cannot be shared equally", fix)
        return {
            "output_dir": tempfile.gettempdir(),
            "per_device_train_batch_size": share,
            "max_grad_norm": parameters.max_gradient_norm,
            "bf16": parameters.precision == "bfloat16",
            "seed": self.order.spec.seed,
            "use_cpu": self.device.type == "cpu",
            "gradient_checkpointing": False,
            "train_sampling_strategy": "sequential",
            "remove_unused_columns": False,
            "save_strategy": "no",
            "logging_steps": 1,
            "report_to": [],
            "disable_tqdm": True,
        }

    def _optimisers(self, model: Any) -> tuple[Any, Any]:
        """AdamW, and a schedule by the run's steps, which follow from the number of its own."""
        parameters, total, begun = self.learner.parameters, self.order.spec.total_steps, self.learner.step
        trained = [part for part in model.parameters() if part.requires_grad]
        adam = torch.optim.AdamW(trained, lr=parameters.learning_rate, weight_decay=parameters.weight_decay)
        return adam, torch.optim.lr_scheduler.LambdaLR(
            adam, lambda taken: step_size(parameters, 1.0, (begun + taken // self.reuses * self.size) / total)
        )

    def _demonstrations(self, examples: Examples) -> dict[str, torch.Tensor]:
        batch = _padded([self.lessons[example["number"]] for example in examples])
        labels = torch.where(batch.pop("completion_mask") > 0, batch["input_ids"], IGNORED)
        return batch | {"labels": labels}

    def _pairs(self, examples: Examples) -> dict[str, torch.Tensor]:
        pairs, reward = (
            [self.lessons[example["number"]] for example in examples],
            isinstance(self.learner, BradleyTerry),
        )
        some = [pair.chosen.rows[-1] for pair in pairs] + [pair.rejected.rows[-1] for pair in pairs]
        batch = _padded(some, self.apart.config.pad_token_id if reward else 0)
        if reward:
            del batch["completion_mask"]
        return batch

    def _dpo(self) -> Columns:
        parameters = self.learner.parameters
        more: Columns = {"beta": parameters.beta, "max_length": None}
        if parameters.nll_coefficient:
            more |= {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, parameters.nll_coefficient]}
        return more

    def _grpo(self) -> Columns:
        parameters, model = self.learner.parameters, self.order.spec.data.language_model
        assert model is not None
        if self.size // self.group.place.size % parameters.group_size:
            fix = "make batchEpisodes a multiple of ranks × groupSize"
            raise errors.ConfigError(f"{PARAMETERS}.batchEpisodes", self.size, "divides a group among ranks", fix)
        more: Columns = {
            "num_generations": parameters.group_size,
            "num_iterations": self.reuses,
            "temperature": model.sampling.temperature,
            "max_completion_length": self.context,
            "beta": parameters.kl_coefficient,
            "shuffle_dataset": False,
        }
        if self.shards:  # of the reference that TRL loads
            more["model_init_kwargs"] = self.shards
        if (
            self.order.spec.algorithm == "rloo"
        ):  # r less the others' mean: the group's size times r less the mean of all
            others = max(1, parameters.group_size - 1)
            more |= {"scale_rewards": "none", "reward_weights": [parameters.group_size / others], "loss_type": "grpo"}
            return more | {"epsilon": 1.0, "epsilon_high": parameters.ratio_cap - 1}
        scale = "group" if parameters.scale_by_deviation else "none"
        return more | {"epsilon": parameters.clip_low, "epsilon_high": parameters.clip_high, "scale_rewards": scale}

    def _rollout(self, prompts: Sequence[str], trainer: Any) -> Columns:
        """Conversations about these tasks, held with the environment by the sampler of engine own."""
        del trainer
        model, size = self.order.spec.data.language_model, self.learner.parameters.group_size
        assert model is not None
        rollouts = sampler.Rollouts(self.order.environment, self.world, self.chat, self.order.spec.seed, len(prompts))
        limits = baseline_policy.limits(model.sampling, self.chat, self.context)
        draws = [sampler.Draw(int(task), int(task) * size + at % size) for at, task in enumerate(prompts)]
        network = self.learner.network
        if self.shards:
            self._exchange(back=True)
            network.place(self.device)
        network.model.eval()
        with network.sampling() as speaking:
            speak = sampler.Sampler(speaking)
            held = rollouts.play(draws, randomness.Split.TRAINING, speak, limits, self.learner.step // self.size)
        network.model.train()
        if self.shards:
            network.place(torch.device("cpu"))
        columns: Columns = {name: [] for name in ("prompt_ids", "completion_ids", "env_mask", "won", "logprobs")}
        for episode in held:
            if len(episode.rows) != 1:
                problem = "has a chat template that writes earlier turns otherwise than they were drawn"
                raise errors.ConfigError("spec.data.languageModel.base", model.base.uri, problem, "set engine to own")
            (row,) = episode.rows
            begin = int(row.sampled.argmax())
            columns["prompt_ids"].append(row.ids[:begin].tolist())
            columns["completion_ids"].append(row.ids[begin:].tolist())
            columns["env_mask"].append(row.sampled[begin:].astype(int).tolist())
            columns["logprobs"].append(row.log_prob[begin:].tolist())
            columns["won"].append(episode.reward)
        self.recent.extend(episode.reward for episode in held)
        return columns

    def _padding(self, every: Sequence[rows.Pair]) -> str:
        """A word that ends no answer: transformers scores an answer at its last word that is not padding."""
        last = {int(_read(answer.rows[-1])[-1]) for pair in every for answer in (pair.chosen, pair.rejected)}
        texts: Mapping[str, int] = self.base.tokeniser.get_vocab()
        return min((word, text) for text, word in texts.items() if word not in last)[1]

    def _loaded(self, kind: str, **more: Any) -> Any:
        import transformers

        learner = self.learner
        model = getattr(transformers, kind).from_pretrained(
            self.base.folder, local_files_only=True, dtype=learner.network.model.dtype, **self.shards, **more
        )
        return model if self.shards else model.to(self.device)

    def _loaded_apart(self) -> Any:
        """The network as shards, or as transformers' model for scores, with the same weights and the same adapter."""
        learner, parameters = self.learner, self.learner.parameters
        scores = isinstance(learner, BradleyTerry)
        of_scores: Columns = {"kind": "AutoModelForSequenceClassification", "num_labels": 1}
        self.apart = self._loaded(**of_scores if scores else {"kind": "AutoModelForCausalLM"})
        if learner.network.adapters is not None:
            wanted = parameters.lora
            lora.attach(self.apart, wanted.layers, wanted.rank, wanted.alpha, self.order.spec.seed)
        if scores:
            self.apart.score.requires_grad_(requires_grad=True)
        self._exchange(back=False)
        return self.apart

    @torch.no_grad()
    def _exchange(self, *, back: bool) -> None:
        """Copy what learns to the model apart, or `back`. Collective where that is in shards."""
        parts = dict(self.apart.named_parameters())
        for name, own in self.learner.network.trainable.items():
            other = parts.get({"value_head.weight": "score.weight"}.get(name, name))
            if other is None:
                continue
            if back:
                own.copy_(other.full_tensor() if isinstance(other, DTensor) else other)
            elif isinstance(other, DTensor):
                whole = own.detach().to(other.device)
                other.copy_(distribute_tensor(whole, other.device_mesh, other.placements, src_data_rank=None))
            else:
                other.copy_(own)


def _won(won: list[float], **_: Any) -> list[float]:
    return won


def _read(row: rows.Row) -> np.ndarray[Any, Any]:
    """All to the last token that was drawn."""
    return row.ids[: int(np.flatnonzero(row.sampled)[-1]) + 1]


def _padded(some: Sequence[rows.Row], padding: int = 0) -> dict[str, torch.Tensor]:
    longest = max(len(_read(row)) for row in some)
    batch = {
        name: torch.zeros((len(some), longest), dtype=torch.int64) for name in ("attention_mask", "completion_mask")
    }
    batch["input_ids"] = torch.full((len(some), longest), padding)
    for at, row in enumerate(some):
        ids = _read(row)
        batch["input_ids"][at, : len(ids)] = torch.from_numpy(ids)
        batch["attention_mask"][at, : len(ids)] = 1
        batch["completion_mask"][at, : len(ids)] = torch.from_numpy(row.sampled[: len(ids)].astype(np.int64))
    return batch


def _dataset(columns: Columns) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(columns)


def _callback(training: TrlTraining, session: saver_and_stopper.Run) -> Any:
    from transformers import TrainerCallback

    end = time.monotonic() + CHUNK_SECONDS
    stop: Callable[[], bool] = lambda: session.stopper.requested or time.monotonic() > end  # noqa: E731

    class Progress(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """Collective: all ranks stop after the same update, and its episodes are used as often as others."""
            if state.global_step % training.reuses == 0:
                training.learner.step += training.size
                control.should_training_stop |= bool(training.group.sum([float(stop())])[0])
            return control

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            reported = {CURVES[name]: float(value) for name, value in (logs or {}).items() if name in CURVES}
            training.curves |= reported
            shown = {name: reported[name] for name in language_training.SHOWN if name in reported}
            session.reporter.progress(training.learner.step, training.recent, shown, points=training.curves)

    return Progress()
