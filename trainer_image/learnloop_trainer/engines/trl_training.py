"""Engine `trl`: language models by TRL's trainers, on the data and under the proof of learnloop's own learners.

TRL trains the network that the session holds, so its checkpoints, its initial weights and its proof are those of engine
own. A scorer, or shards by FSDP2, it trains apart and copies back. Rows of tokens come from the run's experience by
collators of ours: no text is encoded again.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from learnloop_environments import errors, randomness
from learnloop_trainer import baseline_policy, distributed, training_order
from learnloop_trainer.engines import trl_settings
from learnloop_trainer.engines.trl_settings import Columns
from learnloop_trainer.language import lora, rows, sampler
from learnloop_trainer.language.algorithms.sft_dpo_bradley_terry import BradleyTerry, Dpo, Sft, numbers
from learnloop_trainer.neural.schedules import step_size
from learnloop_trainer.training_run import language_training, training_loop

CHUNK_SECONDS, CHUNK_MEMBERS = 15.0, 16_384
"""A session saves and looks for a signal between two calls of train(), each on so many episodes or pairs at most."""
CURVES = {"loss": "loss", "grad_norm": "gradient_norm", "kl": "kl", "entropy": "entropy", "rewards/won/mean": "reward"}
IGNORED = -100
Examples = Sequence[Mapping[str, int]]


def begin(order: training_order.Order, group: distributed.Group, device: torch.device, store: Any) -> "TrlTraining":
    """See language_training.begin_language; raises ConfigError for what no trainer of TRL heeds."""
    trl_settings.refuse_unheeded(order)
    if group.place.size > 1:  # accelerate then joins the group that the ranks have formed
        os.environ["LOCAL_RANK"] = str(device.index or 0)
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = group.place.master, str(group.place.port)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    shards = trl_settings.shards_of(order, group)
    own = language_training.begin_language(order, group, torch.device("cpu") if shards else device, store)
    held = {one.name: getattr(own, one.name) for one in fields(own)}
    return TrlTraining(**held | {"title": f"TRL: {own.title}"}, order=order, group=group, device=device, shards=shards)


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

    @property
    def size(self) -> int:
        return trl_settings.size_of(self.order.parameters)

    @property
    def reuses(self) -> int:
        return trl_settings.reuses_of(self.order.parameters)

    def iterate(self, session: training_loop.Run) -> None:
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

    def _made(self) -> Any:
        """TRL's trainer; its first data are an example, of which it wants the form."""
        trl: Any = import_module("trl")  # it names its trainers when they are asked for
        learner, model, ranks = self.learner, self.learner.network.model, self.group.place.size
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
            self.lessons, kind, config = learner._fetched(), trl.DPOTrainer, trl.DPOConfig
            more = trl_settings.of_dpo(learner.parameters)
            form = dict.fromkeys(("prompt", "chosen", "rejected"), self.base.tokeniser.decode([0, 1]))
            given["ref_model"] = self._loaded("AutoModelForCausalLM")
        elif isinstance(learner, BradleyTerry):
            self.lessons, kind, config = learner.pairs.learned, trl.RewardTrainer, trl.RewardConfig
            more["center_rewards_coefficient"] = learner.parameters.score_decay
            more["pad_token"] = self._padding(self.lessons)
            form = {"chosen_ids": [0], "rejected_ids": [0]}
        else:
            kind, config, form = trl.GRPOTrainer, trl.GRPOConfig, {"prompt": "0"}
            more = trl_settings.of_grpo(self.order, ranks, self.context, self.shards)
            given = {"rollout_func": self._rollout, "reward_funcs": _won}
        given |= {"processing_class": deepcopy(self.base.tokeniser), "optimizers": self._optimisers(model)}
        given["train_dataset"] = _dataset({name: [value] for name, value in form.items()})
        maker, settings = config, {**(self.order.spec.settings or {})}
        settings.pop(trl_settings.SHARDED, None)
        try:
            arguments = config(**trl_settings.arguments(self.order, ranks, self.device) | more | settings)
            maker = kind
            return kind(model=model, args=arguments, **given)
        except (ImportError, NotImplementedError, TypeError, ValueError) as error:
            problem = f"are refused by {maker.__name__}: {' '.join(str(error).split())[:300]}"
            raise errors.ConfigError(trl_settings.SETTINGS, settings, problem, "correct them") from None

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


def _callback(training: TrlTraining, session: training_loop.Run) -> Any:
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
