"""A language model that an engine has trained: what the engine gets for it, and the proof of what it hands in.

It hands in an adapter as PEFT writes it, or whole weights, in safetensors. Learnloop puts them on the base model,
writes its own file of them, and holds the held-out conversations with that, as with what its own learners train.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, torch as safetensors

from learnloop_api.kinds.training.algorithms import Lora, hyperparameters
from learnloop_api.wire.engine import ADAPTER, ADAPTER_CONFIG, RESULT, WEIGHTS, EngineLanguageModel
from learnloop_environments.errors import ConfigError
from learnloop_trainer import distributed, training_order
from learnloop_trainer.engines.engine_process import PAGE, EngineMistaken, Handed
from learnloop_trainer.export import language_model_files
from learnloop_trainer.language import lora, network as networks
from learnloop_trainer.training_run import language_proof, language_training, proof, training_loop

MOST_RANK = 512
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    **dict.fromkeys(("use_rslora", "use_dora", "fan_in_fan_out", "lora_bias"), (False, None)),
    **dict.fromkeys(("modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication"), (None, {}, [])),
}
"""Entries of adapter_config.json, and what each must be: policy servers know this kind of adapter alone."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """The model of an order, and its world: see engine_proof.Played."""

    order: training_order.Order
    opened: language_training.Opened

    files = ((ADAPTER, ADAPTER_CONFIG), (WEIGHTS,))

    def order_fields(self) -> dict[str, Any]:
        model, opened = self.order.spec.data.language_model, self.opened
        assert model is not None
        folder = training_order.model_folder(model, os.environ)
        language = EngineLanguageModel(
            base_uri=model.base.uri,
            base_sha256=opened.base.sha256,
            folder=None if folder is None else str(folder),
            context_length=opened.context,
            max_tokens=min(model.sampling.max_tokens, opened.context),
            temperature=model.sampling.temperature,
            tools=[tool.to_openai() for tool in model.tools] or [dict(tool) for tool in opened.world.tools],
        )
        return {"language_model": language}

    def prove(self, run: training_loop.Run, handed: Handed, size: int) -> proof.Exported:
        """Raises EngineMistaken for files that do not make a model of this base."""
        if handed.result.behaviour is not None or handed.result.witness is not None:
            raise EngineMistaken(f"{RESULT}: behaviour and witness are of policies of numbers; leave them out")
        run.reporter.phase("exporting", "reading the engine's weights")
        whole = WEIGHTS in handed.files
        parameters = hyperparameters("sft", weights="full" if whole else "lora")
        model, name = self.opened.base.model(run.device), WEIGHTS if whole else ADAPTER
        given = _arrays(name, handed.files[name])
        try:
            if whole:
                trained = language_model_files.Trained(given, {})
                language_model_files.put_into(model, trained)
                network = networks.LanguageNetwork(model)
            else:
                rank, alpha = _adapter(handed.files[ADAPTER_CONFIG])
                if strange := [key for key, part in given.items() if rank not in part.shape]:
                    raise ValueError(f"{strange[0]} has shape {given[strange[0]].shape}, and r is {rank}")
                parameters = parameters.model_copy(
                    update={"lora": Lora.model_construct(rank=rank, alpha=alpha, layers=[])}
                )
                network = networks.LanguageNetwork(model, lora.attach_trained(model, given, alpha / rank))
        except (ValueError, KeyError) as error:
            raise EngineMistaken(f"{name}: does not fit the base model: {error}; see {PAGE}") from None
        setting = networks.Setting(
            network, None, distributed.Alone(), self.order.spec.seed, self.order.spec.total_steps
        )
        title, learner = f"{run.order.spec.trained_by} engine", networks.LanguageLearner(parameters, setting)
        opened = self.opened
        training = language_training.LanguageTraining(
            title, learner, opened.base, opened.chat, opened.world, opened.context
        )
        proved = language_proof.prove_language(run, training)
        reported = {f"engine.{name}": version for name, version in handed.result.versions.items()}
        return replace(proved, fields={**proved.fields, "world_size": size, "versions": proof.versions() | reported})


def spoken(order: training_order.Order) -> Spoken:
    """Raises ConfigError for a base model that this pod does not have, or another one."""
    if order.spec.export.behaviour is not None:
        value, fix = order.spec.export.behaviour.kind, "remove it: spec.data.languageModel.sampling says how it speaks"
        raise ConfigError("spec.export.behaviour", value, "is for policies of numbers", fix)
    return Spoken(order, language_training.opened(order))


def _arrays(name: str, body: bytes) -> dict[str, NDArray[Any]]:
    try:
        return {key: part.float().numpy() for key, part in safetensors.load(body).items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise EngineMistaken(f"{name}: is not a safetensors file ({str(error)[:120]}); write one") from None


def _adapter(body: bytes) -> tuple[int, float]:
    """Rank and alpha of an adapter_config.json; raises EngineMistaken for an adapter of another kind."""
    try:
        config = json.loads(body)
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise EngineMistaken(f"{ADAPTER_CONFIG}: has no numbers r and lora_alpha ({error!r}); see {PAGE}") from None
    if not 1 <= rank <= MOST_RANK or not 0 < alpha < 1e6:
        raise EngineMistaken(f"{ADAPTER_CONFIG}: r {rank} is not from 1 to {MOST_RANK}, or lora_alpha not above 0")
    for field, allowed in PLAIN.items():
        if config.get(field, allowed[0]) not in allowed:
            problem = f"{ADAPTER_CONFIG}: {field}: {str(config[field])[:80]!r} is not served"
            raise EngineMistaken(f"{problem}; train a plain LoRA, with {field} {json.dumps(allowed[0])}")
    return rank, alpha
