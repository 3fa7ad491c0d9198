"""After a language model was trained: export, evaluate, compare, and write the manifest that proves it."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from learnloop_api.wire.training import ExportedFormat, LanguageProof, Manifest, Parity, ReturnEstimate, Validated
from learnloop_common.acting.gguf_adapter import gguf_adapter
from learnloop_environments.conversations.base import ConversationWorld
from learnloop_environments.conversations.make import world_digest
from learnloop_trainer.errors import ExportError
from learnloop_trainer.evaluation import difference, estimate, held_out_episodes
from learnloop_trainer.export.language import BASE, TEMPLATE, exported, read
from learnloop_trainer.language import lora
from learnloop_trainer.language.base_model import Base
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.network import LanguageLearner, LanguageNetwork
from learnloop_trainer.language.rows import Episode, batches
from learnloop_trainer.language.sampler import Limits
from learnloop_trainer.manifest.baseline_policy import HeldOutTasks, limits, loaded, returns, served
from learnloop_trainer.manifest.proof import VALIDATION
from learnloop_trainer.manifest.record import stored
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.recordings import ReadExperience
from learnloop_trainer.run import Run
from learnloop_trainer.store.run_store import Store, digest

MOST_DIFFERENCE = 1e-3
"""Of a log-probability between the trained network and its file read again: float32 sums in another order."""
PARITY_EPISODES = 64


class Subject(Protocol):
    """A training that is over, and all that is needed to judge it."""

    base: Base
    chat: Chat
    world: ConversationWorld
    learner: LanguageLearner
    context: int
    curves: dict[str, float]
    begun_from: str
    read: ReadExperience


def prove_language(run: Run, subject: Subject, validated: Validated | None) -> Manifest:
    """Export, hold held-out conversations with the trained model and the one that serves, and store.

    Returns the manifest, already durable.
    """
    order, spec, reporter, store = run.order, run.order.spec, run.reporter, run.store
    network, base = subject.learner.network, subject.base
    parameters, model = order.parameters, spec.data.language_model
    assert model is not None
    reporter.phase("exporting", "writing the trained weights")
    config = None
    if network.adapters is not None:
        wanted = parameters.lora
        config = lora.configuration(sorted(_kinds(network)), wanted.rank, wanted.alpha, model.base.uri)
    body = exported(network, facts(run, subject), config)
    proof, dtype = held_out_episodes.episodes(order), next(network.model.parameters()).dtype
    ours = loaded(base, read(body), network.device, dtype, "the exported file")

    reporter.phase("evaluating", "holding held-out conversations")
    tasks = HeldOutTasks(order, subject.world, subject.chat, proof.seed)
    drawn = limits(model.sampling, subject.chat, subject.context)
    likeliest = limits(model.sampling, subject.chat, subject.context, 0.0)

    def measured(title: str, speaker: Any, how: Limits, first: int, episodes: int) -> list[Episode]:
        spoken = tasks.play(speaker, how, first, episodes)
        reporter.alive(f"{title}: {len(spoken)} held-out conversations")
        return spoken

    held = measured("trained model", ours, drawn, proof.first, proof.episodes)
    calm = held
    if drawn.temperature:
        calm = measured("its likeliest answers", ours, likeliest, proof.first, proof.episodes)
    validation: ReturnEstimate | None = None
    if spec.evaluation.validation_episodes:
        more = measured("validation", ours, drawn, proof.first + VALIDATION, spec.evaluation.validation_episodes)
        validation = estimate(returns(more), spec.seed)
    reporter.phase("exporting", "comparing the exported weights with the trained ones")
    parity = compared(network, ours, held[:PARITY_EPISODES], parameters.tokens_per_batch)
    del ours
    reporter.phase("evaluating", "holding the same conversations with the model that serves")
    uri, sha256, before = served(order, store, base)
    other = loaded(base, before, network.device, dtype, uri)
    others = measured("baseline", other, drawn, proof.first, proof.episodes)
    their_calm = measured("baseline's likeliest answers", other, likeliest, proof.first, proof.episodes)
    evaluation, baseline = estimate(returns(held), spec.seed), estimate(returns(others), spec.seed)
    assert evaluation is not None  # evaluation.episodes is at least 1
    assert baseline is not None
    say(f"trained model: mean {evaluation.mean:.3f} over {proof.episodes} held-out tasks, baseline {baseline.mean:.3f}")
    return stored(
        run,
        subject.learner.step,
        body,
        baseline=baseline,
        evaluation=evaluation,
        difference=difference(returns(held), returns(others), spec.seed),
        held_out=proof,
        begun_from=subject.begun_from or None,
        experience=subject.read.note,
        baseline_uri=uri,
        baseline_sha256=sha256,
        greedy=estimate(returns(calm), spec.seed),
        parity=parity,
        validation=validation,
        while_training=validated,
        exports=_further(network, base, parity, parameters.lora.alpha, config, store),
        language=LanguageProof(
            **measured_model(run, subject),
            tools_sha256=tools_digest(subject.world, model.tools),
            environment_sha256=hashlib.sha256(world_digest(order.environment).encode()).hexdigest(),
            temperature=model.sampling.temperature,
            max_tokens=drawn.most,
            success=_share(held),
            greedy_success=_share(calm),
            baseline_success=_share(others),
            baseline_greedy_success=_share(their_calm),
            mean_tokens=float(np.mean([episode.sampled for episode in held])),
            truncated=float(np.mean([episode.truncated for episode in held])),
        ),
    )


def facts(run: Run, subject: Subject) -> dict[str, str]:
    """Metadata of an exported file."""
    return {
        BASE: subject.base.sha256,
        TEMPLATE: subject.chat.digest,
        "learnloop.algorithm": run.order.spec.algorithm,
        "learnloop.job": run.order.job,
    }


def measured_model(run: Run, subject: Subject) -> dict[str, Any]:
    """Fields that the proofs of language models and of reward models have in common."""
    model = run.order.spec.data.language_model
    assert model is not None
    return {
        "base_uri": model.base.uri,
        "base_sha256": subject.base.sha256,
        "template_sha256": subject.chat.digest,
        "weights": "full" if subject.learner.network.adapters is None else "lora",
        "precision": run.order.parameters.precision,
        "context_length": subject.context,
        "curves": {name: value for name, value in subject.curves.items() if np.isfinite(value)},
    }


def _kinds(network: LanguageNetwork) -> set[str]:
    return {name.rpartition(".")[2] for name in network.adapters or {}}


def _share(episodes: Sequence[Episode]) -> float | None:
    successes = [episode.success for episode in episodes if episode.success is not None]
    return float(np.mean(successes)) if successes else None


def tools_digest(world: ConversationWorld, tools: Sequence[Any]) -> str:
    """SHA-256 of the tools as the template was given them, as canonical JSON."""
    given = [tool.to_openai() for tool in tools] or [dict(tool) for tool in world.tools]
    return hashlib.sha256(json.dumps(given, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@torch.no_grad()
def compared(network: LanguageNetwork, again: Any, episodes: Sequence[Episode], budget: int) -> Parity:
    """Does the file that was stored say what the trained network says? On tokens drawn in held-out conversations.

    `again`: the exported file, put into a fresh base model. Raises ExportError where it does not.
    """
    spoken = [episode for episode in episodes if episode.sampled]
    other = LanguageNetwork(again, {}, bfloat16=network.bfloat16)
    most, agreed, count = 0.0, 0, 0
    for batch in batches(spoken, range(len(spoken)), budget, network.device):
        trained, stored = network.score(batch), other.score(batch)
        gap = (trained.log_prob - stored.log_prob).abs()
        most = max(most, float(gap.max()))
        agreed += int((gap <= MOST_DIFFERENCE).sum())
        count += len(gap)
    if not count:
        raise ExportError("the trained model drew no token in any held-out conversation; nothing was stored")
    allowed = MOST_DIFFERENCE if not network.bfloat16 else 0.1  # a bfloat16 has 8 bits
    if most > allowed:
        raise ExportError(
            f"the exported weights differ from the trained ones: log-probabilities by up to {most:.3g} over {count} "
            "tokens; nothing was stored"
        )
    return Parity(observations=count, recorded=0, max_abs_difference=most, action_agreement=agreed / count, passed=True)


def _further(
    network: LanguageNetwork,
    base: Base,
    parity: Parity,
    alpha: float,
    config: str | None,
    store: Store,
) -> list[ExportedFormat]:
    """adapter_config.json for PEFT's readers, and the adapter as GGUF where llama.cpp knows the architecture."""
    if network.adapters is None or config is None:
        return []
    bodies: list[tuple[Any, bytes]] = [("peft-config", config.encode())]
    made = gguf_adapter(lora.arrays(network.adapters), base.config, alpha)
    if made is None:
        say(f"no GGUF adapter: {base.config.get('architectures')} is not an architecture whose names are known here")
    else:
        bodies.append(("gguf-lora", made))
    return [
        ExportedFormat(
            format=kind, uri=store.put_artifact(body), sha256=digest(body), size_bytes=len(body), parity=parity
        )
        for kind, body in bodies
    ]
