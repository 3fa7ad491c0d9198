"""One rank's training of a language model, and its checkpoints, from which it resumes bit for bit."""

import json

from learnloop_environments.conversations.make import world_digest
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.store.run_store import pack, part, under
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import described, opened, same_weights, take_up
from learnloop_trainer.training_run.language_beginning import LanguageTraining, begin_language
from learnloop_trainer.training_run.paced_session import PacedSession

FORMAT = "learnloop-language-checkpoint-1"
SHOWN = ("loss", "kl", "entropy", "success", "margin")


def fingerprint(order: Order) -> str:
    """Text that is equal for a checkpoint and the order that it belongs to."""
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
    digests = group.gather(training.learner.network.digest().encode())
    if not digests:
        return None
    weights = same_weights([digest.decode() for digest in digests], training.learner.step)
    rest, metadata = described(training, fingerprint(order), group, weights)
    shared = under("shared", training.learner.shared())
    return pack(shared | rest, metadata | {"curves": json.dumps(training.curves)})


def restore(training: LanguageTraining, order: Order, body: bytes) -> str:
    """Take up a checkpoint; returns a note for the log. Raises ValueError when it belongs to another run."""
    arrays, metadata = opened(body, fingerprint(order))
    training.learner.restore(part(arrays, "shared"))
    take_up(training, arrays, metadata)
    training.curves = json.loads(metadata.get("curves", "{}"))
    return f"resuming at step {training.learner.step}"


class LanguageSession(PacedSession[LanguageTraining]):
    """Training of a language model."""

    def _begin(self) -> LanguageTraining:
        return begin_language(self._order, self._group, self._run.device, self._run.store)

    def _restore(self, training: LanguageTraining, body: bytes) -> str:
        return restore(training, self._order, body)

    def _packed(self, training: LanguageTraining) -> bytes | None:
        return save(training, self._order, self._group)

    def train(self) -> LanguageTraining:
        """Train to `totalSteps` or the end of patience; returns when the final checkpoint is handed to the saver."""
        self._reporter.alive("loading the base model")
        training = self._resumed()
        weights = getattr(self._order.parameters, "weights", "")
        if training.validation is not None:
            training.validation.note(training.learner, self._reporter.alive)
        self._train(training, f"{self._order.spec.algorithm} ({weights}) on {self._order.environment}")
        return training

    def _iterate(self, training: LanguageTraining) -> None:
        done = training.learner.iterate()
        training.recent.extend(done.returns)
        training.curves = dict(done.curves)
        if training.validation is not None:
            training.curves |= training.validation.note(training.learner, self._reporter.alive)
        shown = {name: done.curves[name] for name in SHOWN if name in done.curves}
        self._reporter.progress(training.learner.step, training.recent, shown, points=training.curves)
