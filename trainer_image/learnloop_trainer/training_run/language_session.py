"""One rank's training of a language model, its checkpoints, and how it is taken up again bit for bit."""

import json

import numpy as np
import torch

from learnloop_api.wire.trajectory import ExperienceRead
from learnloop_environments.conversations.make import world_digest
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.errors import PeerLost
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.store.run_store import pack, part, under, unpack
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.language_beginning import LanguageTraining, begin_language
from learnloop_trainer.training_run.paced_session import PacedSession, newest

FORMAT = "learnloop-language-checkpoint-1"
SHOWN = ("loss", "kl", "entropy", "success", "margin")


def fingerprint(order: Order) -> str:
    """What must be equal for a checkpoint to belong to an order."""
    spec, model = order.spec, order.spec.data.language_model
    assert model is not None
    facts = {
        "format": FORMAT,
        "algorithm": spec.algorithm,
        "parameters": order.parameters.model_dump(mode="json"),
        "seed": spec.seed,
        "steps": spec.total_steps,
        "environment": f"{order.environment} code={world_digest(order.environment)}",
        "model": model.model_dump(mode="json", exclude={"base": {"uri"}}),
        "data": spec.data.model_dump(mode="json", include={"rewards", "filter", "learning_agent_ref"}),
        "initial": spec.initial_policy.model_dump(mode="json") if spec.initial_policy else None,
        "reward_policy": order.reward_policy.model_dump() if order.reward_policy else None,
    }
    if spec.evaluation.while_training is not None:
        facts["while_training"] = spec.evaluation.while_training.model_dump()
    return json.dumps(facts, sort_keys=True)


def save(training: LanguageTraining, order: Order, group: Group) -> bytes | None:
    """Collective: the state, on rank 0; None elsewhere. Raises PeerLost when the ranks' weights differ."""
    learner, digest = training.learner, training.learner.network.digest()
    shared = learner.shared()
    digests = group.gather(digest.encode())
    if not digests:
        return None
    for rank, other in enumerate(digests):
        if other != digests[0]:
            raise PeerLost(f"rank {rank}'s weights differ from rank 0's at step {learner.step}; reloading both")
    metadata = {
        "fingerprint": fingerprint(order),
        "step": str(learner.step),
        "world_size": str(group.place.size),
        "weights": digest,
        "begun_from": training.begun_from,
        "curves": json.dumps(training.curves),
    }
    if training.read.note is not None:
        metadata["experience"] = training.read.note.model_dump_json()
    recent = np.asarray(training.recent, dtype=np.float64)
    judged = under("validation", training.validation.state()) if training.validation is not None else {}
    return pack(under("shared", shared) | judged | {"recent": recent}, metadata)


def restore(training: LanguageTraining, order: Order, body: bytes) -> str:
    """Take up a checkpoint; returns a note for the log. Raises ValueError when it belongs to another run."""
    arrays, metadata = unpack(body)
    if metadata.get("fingerprint") != fingerprint(order):
        raise ValueError("the checkpoint found belongs to another specification")
    learner = training.learner
    learner.restore(part(arrays, "shared"))
    if learner.network.digest() != metadata.get("weights"):
        raise ValueError("the checkpoint's weights do not have the digest it was saved with")
    if training.validation is not None:
        training.validation.restore(part(arrays, "validation"))
    training.begun_from = metadata.get("begun_from", training.begun_from)
    training.curves = json.loads(metadata.get("curves", "{}"))
    if "experience" in metadata:
        training.read.note = ExperienceRead.model_validate_json(metadata["experience"])
    training.recent.extend(float(value) for value in arrays["recent"])
    return f"resuming at step {learner.step}"


class LanguageSession(PacedSession[LanguageTraining]):
    """Training of a language model."""

    def run(self, device: torch.device) -> LanguageTraining:
        """Train to `totalSteps` or the end of patience; returns when the final checkpoint is handed to the saver."""
        order, group, store = self._order, self._group, self._store
        self._reporter.alive("loading the base model")
        training = begin_language(order, group, device, store)
        body = group.broadcast(newest(store) if group.place.rank == 0 else None)
        if body:
            try:
                say(restore(training, order, body))
            except (ValueError, KeyError) as error:
                say(f"the checkpoint cannot be used, starting anew: {error}")
                training = begin_language(order, group, device, store)
        kind = getattr(order.parameters, "weights", "")
        if training.validation is not None:
            training.validation.note(training.learner, self._reporter.alive)
        self._train(training, f"{order.spec.algorithm} ({kind}) on {order.environment}")
        return training

    def _over(self, training: LanguageTraining) -> bool:
        return super()._over(training) or (training.validation is not None and training.validation.over)

    def _packed(self, training: LanguageTraining) -> bytes | None:
        return save(training, self._order, self._group)

    def _step(self, training: LanguageTraining) -> int:
        return training.learner.step

    def _iterate(self, training: LanguageTraining) -> None:
        done = training.learner.iterate()
        training.recent.extend(done.returns)
        training.curves = dict(done.curves)
        if training.validation is not None:
            training.curves |= training.validation.note(training.learner, self._reporter.alive)
        shown = {name: done.curves[name] for name in SHOWN if name in done.curves}
        self._reporter.progress(training.learner.step, training.recent, shown, points=training.curves)
