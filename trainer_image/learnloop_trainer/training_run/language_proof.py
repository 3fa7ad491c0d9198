"""The proof of a language model: by conversations."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from learnloop_api.wire.language import LanguageProof
from learnloop_api.wire.training import Parity
from learnloop_common.acting.gguf_adapter import gguf_adapter
from learnloop_environments.conversations.conversation_world import ConversationWorld
from learnloop_environments.make import world_digest
from learnloop_trainer import baseline_policy, errors, progress_reporter
from learnloop_trainer.evaluation import estimate, held_out_episodes
from learnloop_trainer.export.language_model_files import BASE, TEMPLATE, exported, read
from learnloop_trainer.language import base_model, lora, rows, sampler
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.training_run import language_training, policy_proof, proof, training_loop

MOST_DIFFERENCE = 1e-3
"""Of a log-probability between the trained network and its file read again: float32 sums in another order."""
PARITY_EPISODES = 64


def prove_language(run: training_loop.Run, training: language_training.LanguageTraining) -> proof.Exported:
    """Export the model, and hold held-out conversations with it and with what serves."""
    order, spec, reporter, store = run.order, run.order.spec, run.reporter, run.store
    network, base = training.learner.network, training.base
    parameters, model = training.learner.parameters, spec.data.language_model
    assert model is not None
    reporter.phase("exporting", "writing the trained weights")
    config = None
    if network.adapters is not None:
        wanted = parameters.lora
        config = lora.configuration(sorted(_kinds(network)), wanted.rank, wanted.alpha, model.base.uri)
    body = exported(network, facts(run, training), config)
    held_out, dtype = held_out_episodes.episodes(order), next(network.model.parameters()).dtype
    ours = baseline_policy.loaded(base, read(body), network.device, dtype, "the exported file")

    reporter.phase("evaluating", "holding held-out conversations")
    tasks = baseline_policy.HeldOutTasks(order, training.world, training.chat, held_out.seed)
    drawn = baseline_policy.limits(model.sampling, training.chat, training.context)
    likeliest = baseline_policy.limits(model.sampling, training.chat, training.context, 0.0)

    def measured(title: str, speaker: Any, how: sampler.Limits, first: int, episodes: int) -> list[rows.Episode]:
        spoken = tasks.play(speaker, how, first, episodes)
        reporter.alive(f"{title}: {len(spoken)} held-out conversations")
        return spoken

    held = measured("trained model", ours, drawn, held_out.first, held_out.episodes)
    calm = held
    if drawn.temperature:
        calm = measured("its likeliest answers", ours, likeliest, held_out.first, held_out.episodes)
    fields: dict[str, Any] = {"greedy": estimate(baseline_policy.returns(calm), spec.seed)}
    if spec.evaluation.validation_episodes:
        more = measured(
            "validation", ours, drawn, held_out.first + policy_proof.VALIDATION, spec.evaluation.validation_episodes
        )
        fields["validation"] = estimate(baseline_policy.returns(more), spec.seed)
    reporter.phase("exporting", "comparing the exported weights with the trained ones")
    parity = compared(network, ours, held[:PARITY_EPISODES], parameters.tokens_per_batch)
    del ours
    reporter.phase("evaluating", "holding the same conversations with the model that serves")
    uri, sha256, before = baseline_policy.served(order, store, base)
    other = baseline_policy.loaded(base, before, network.device, dtype, uri)
    others = measured("baseline", other, drawn, held_out.first, held_out.episodes)
    their_calm = measured("baseline's likeliest answers", other, likeliest, held_out.first, held_out.episodes)
    fields |= proof.versus(baseline_policy.returns(held), baseline_policy.returns(others), spec.seed)
    after, serving = fields["evaluation"].mean, fields["baseline"].mean
    progress_reporter.say(
        f"trained model: mean {after:.3f} over {held_out.episodes} held-out tasks, baseline {serving:.3f}"
    )
    language = LanguageProof(
        **measured_model(run, training),
        tools_sha256=tools_digest(training.world, model.tools),
        environment_sha256=hashlib.sha256(world_digest(order.environment).encode()).hexdigest(),
        temperature=model.sampling.temperature,
        max_tokens=drawn.most,
        success=_share(held),
        greedy_success=_share(calm),
        baseline_success=_share(others),
        baseline_greedy_success=_share(their_calm),
        mean_tokens=float(np.mean([episode.sampled for episode in held])),
        truncated=float(np.mean([episode.truncated for episode in held])),
    )
    fields |= {"held_out": held_out, "baseline_uri": uri, "baseline_sha256": sha256, "parity": parity}
    exports = _further(network, base, parity, parameters.lora.alpha, config)
    return proof.Exported(body, fields | {"language": language}, exports)


def facts(run: training_loop.Run, training: language_training.LanguageTraining) -> dict[str, str]:
    return {
        BASE: training.base.sha256,
        TEMPLATE: training.chat.digest,
        "learnloop.algorithm": run.order.spec.algorithm,
        "learnloop.job": run.order.job,
    }


def measured_model(run: training_loop.Run, training: language_training.LanguageTraining) -> dict[str, Any]:
    """Fields that the proofs of language models and of reward models have in common."""
    model = run.order.spec.data.language_model
    assert model is not None
    return {
        "base_uri": model.base.uri,
        "base_sha256": training.base.sha256,
        "template_sha256": training.chat.digest,
        "weights": "full" if training.learner.network.adapters is None else "lora",
        "precision": training.learner.parameters.precision,
        "context_length": training.context,
        "curves": {name: value for name, value in training.curves.items() if np.isfinite(value)},
    }


def _kinds(network: LanguageNetwork) -> set[str]:
    return {name.rpartition(".")[2] for name in network.adapters or {}}


def _share(episodes: Sequence[rows.Episode]) -> float | None:
    successes = [episode.success for episode in episodes if episode.success is not None]
    return float(np.mean(successes)) if successes else None


def tools_digest(world: ConversationWorld, tools: Sequence[Any]) -> str:
    """SHA-256 of the tools as the template was given them, as canonical JSON."""
    given = [tool.to_openai() for tool in tools] or [dict(tool) for tool in world.tools]
    return hashlib.sha256(json.dumps(given, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@torch.no_grad()
def compared(network: LanguageNetwork, again: Any, episodes: Sequence[rows.Episode], budget: int) -> Parity:
    """Does the file that was stored say what the trained network says? On tokens drawn in held-out conversations.

    `again`: the exported file, put into a fresh base model. Raises ExportError where it does not.
    """
    spoken = [episode for episode in episodes if episode.sampled]
    other = LanguageNetwork(again, {}, bfloat16=network.bfloat16)
    most, agreed, count = 0.0, 0, 0
    for batch in rows.batches(spoken, range(len(spoken)), budget, network.device):
        trained, stored = network.score(batch), other.score(batch)
        gap = (trained.log_prob - stored.log_prob).abs()
        most = max(most, float(gap.max().nan_to_num(float(np.finfo(np.float32).max))))  # NaN: no number at all
        agreed += int((gap <= MOST_DIFFERENCE).sum())
        count += len(gap)
    if not count:
        raise errors.ExportError("the trained model drew no token in any held-out conversation; nothing was stored")
    allowed = MOST_DIFFERENCE if not network.bfloat16 else 0.1  # a bfloat16 has 8 bits
    if most > allowed:
        raise errors.ExportError(
            f"the exported weights differ from the trained ones: log-probabilities by up to {most:.3g} over {count} "
            "tokens; nothing was stored"
        )
    return Parity(observations=count, recorded=0, max_abs_difference=most, action_agreement=agreed / count, passed=True)


def _further(
    network: LanguageNetwork, base: base_model.Base, parity: Parity, alpha: float, config: str | None
) -> list[tuple[str, bytes, Parity]]:
    """adapter_config.json for PEFT's readers, and the adapter as GGUF where llama.cpp knows the architecture."""
    if network.adapters is None or config is None:
        return []
    made = gguf_adapter(lora.arrays(network.adapters), base.config, alpha)
    if made is None:
        progress_reporter.say(
            f"no GGUF adapter: {base.config.get('architectures')} is not an architecture whose names are known here"
        )
    bodies = {"peft-config": config.encode(), "gguf-lora": made}
    return [(kind, body, parity) for kind, body in bodies.items() if body is not None]
