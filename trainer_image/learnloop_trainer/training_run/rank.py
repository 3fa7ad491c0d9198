"""One rank's whole life: meet the others, train, prove, and leave with the right exit code."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from learnloop_api import names
from learnloop_api.wire.training import Manifest, Validated
from learnloop_environments import own_code
from learnloop_environments.errors import TrainerError, on_abandon
from learnloop_trainer.distributed.rendezvous import Meeting, meet, rejoin, settled
from learnloop_trainer.distributed.torch_group import Alone, Group, Peers
from learnloop_trainer.errors import PeerLost, Terminated
from learnloop_trainer.language import algorithms
from learnloop_trainer.manifest.language_proof import Subject, prove_language
from learnloop_trainer.manifest.proof import prove, recipe_sha256
from learnloop_trainer.manifest.reward_model_proof import prove_reward_model
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.sampling.learners import SampledLearner
from learnloop_trainer.store import Store, choose
from learnloop_trainer.store.dataplane import DataPlaneStore
from learnloop_trainer.tracking import tracker
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.checkpoints import Saver, Training
from learnloop_trainer.training_run.language_beginning import LanguageTraining
from learnloop_trainer.training_run.language_session import LanguageSession
from learnloop_trainer.training_run.paced_session import FLUSH_SECONDS, Stopper
from learnloop_trainer.training_run.session import Session

BEGAN = "LEARNLOOP_BEGAN"
DURABLE_SECONDS = 330.0


def pick_device(place: Place) -> torch.device:
    """The pod's GPU when there is one, else the CPU; with deterministic kernels either way."""
    torch.backends.cudnn.benchmark = False
    if not torch.cuda.is_available():
        return torch.device("cpu")
    index = place.rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def already_proven(order: Order, manifest: Manifest | None) -> bool:
    """Is the run finished? A manifest left behind by another run of the same name does not count."""
    if manifest is None:
        return False
    same = manifest.recipe_sha256 == recipe_sha256(order)
    if not same:
        say(f"a manifest of another run was found under the name {order.job} and will be replaced")
    return same


def adopted(order: Order, place: Place, store: Store) -> bool:
    """Is the run finished? A proof by an earlier attempt, whose gang failed after it, becomes this attempt's."""
    manifest = store.manifest()
    if manifest is None or not already_proven(order, manifest):
        return False
    attempts = order.attempt + 1
    if place.rank == 0 and manifest.attempts < attempts:
        store.put_manifest(manifest.model_copy(update={"attempts": attempts}))
    return True


def run(order: Order, place: Place, threads: int) -> None:
    """Return when the manifest is durable; raises TrainerError or Terminated for every other end."""
    began = float(os.environ.setdefault(BEGAN, str(time.time())))
    store, stopper = choose(os.environ, order.job, order.agent, order.attempt), Stopper()
    own_code.use(os.environ)
    stopper.install()
    if adopted(order, place, store):
        say("this run's manifest is already durable: nothing to do")
        return
    reporter = Reporter(order, place, store, tracker(order, os.environ, os.environ.get(names.ENV_NAMESPACE, "")))
    saver = Saver(store, reporter.warn)
    if isinstance(store, DataPlaneStore):
        store.follow(reporter.reading, reporter.warn)
    reporter.start()
    on_abandon(lambda sentence: reporter.finish("failed", sentence))
    device = pick_device(place)
    reporter.phase("starting", f"{threads} thread(s), {device}, torch {torch.__version__}")
    try:
        _together(order, place, device, store, reporter, saver, stopper, began)
    except PeerLost as error:
        if stopper.requested:
            raise Terminated("SIGTERM: leaving, a peer was lost at the same time") from None
        saver.flush(10.0)
        _rejoin(error, reporter)
    except Terminated:
        saver.flush(FLUSH_SECONDS)  # SIGTERM after training: the final checkpoint may still be under way
        raise
    except TrainerError as error:
        reporter.finish("failed", str(error))
        raise


def _rejoin(error: PeerLost, reporter: Reporter) -> None:
    try:
        rejoin(str(error))
    except TrainerError as late:
        reporter.finish("failed", str(late))
        raise


def _together(
    order: Order,
    place: Place,
    device: torch.device,
    store: Store,
    reporter: Reporter,
    saver: Saver,
    stopper: Stopper,
    began: float,
) -> None:
    meeting: Meeting | None = None
    group: Group = Alone()
    if place.size > 1:
        meeting = meet(place, reporter.alive)
        if place.rank == 0:
            meeting.watch(lambda reason: _abandon(reason, saver))
        group = peers = Peers(meeting, device)
        say(f"{place.size} ranks meet by {peers.transport}")
    trained = _language_model if order.parameters.algorithm.language else _policy
    prover = trained(order, group, store, reporter, saver, stopper, device, began)
    if meeting is None or place.rank == 0:
        manifest = prover()
        reporter.proven(manifest)
        reporter.finish("done", summary(manifest))
        if meeting is not None:
            meeting.announce()
    else:
        _wait_for_proof(order, meeting, store, reporter)
    settled()
    group.close()


def _policy(
    order: Order,
    group: Group,
    store: Store,
    reporter: Reporter,
    saver: Saver,
    stopper: Stopper,
    device: torch.device,
    began: float,
) -> Callable[[], Manifest]:
    """Train a policy of numbers; returns what proves it."""
    training = Session(order, group, store, reporter, saver, stopper).run(device)
    training.environment.close()
    kept = training.milestones.kept if training.milestones is not None else {}
    validated = _validated(order, training)
    return lambda: prove(
        order,
        training.learner,
        group.place.size,
        store,
        reporter,
        lambda: saver.require(DURABLE_SECONDS),
        began,
        kept,
        training.begun_from,
        training.read,
        validated,
        training.learner.intake.summary() if isinstance(training.learner, SampledLearner) else None,
    )


def _validated(order: Order, training: Training | LanguageTraining) -> Validated | None:
    """What evaluation along training has found; the learner has the best weights then, where they are exported."""
    # Each kind of training has the validation of its own network, which no annotation of both at once can say.
    validation: Any = training.validation
    if validation is None:
        return None
    best, learner = order.spec.export.policy == "best", training.learner
    told: Validated = validation.told(best, learner.step, order.spec.total_steps)
    if best:
        validation.keep_best(learner.network)
    return told


def _language_model(
    order: Order,
    group: Group,
    store: Store,
    reporter: Reporter,
    saver: Saver,
    stopper: Stopper,
    device: torch.device,
    began: float,
) -> Callable[[], Manifest]:
    """Train a language model; returns what proves it."""
    training = LanguageSession(order, group, store, reporter, saver, stopper).run(device)
    validated = _validated(order, training)
    subject = Subject(
        training.base,
        training.chat,
        training.world,
        training.learner,
        training.context,
        training.curves,
        training.begun_from,
        training.read.note,
        validated,
    )
    durable = lambda: saver.require(DURABLE_SECONDS)  # noqa: E731
    traits = algorithms.find(order.spec.algorithm)
    size = group.place.size
    if traits is not None and traits.scores:
        return lambda: prove_reward_model(order, subject, size, store, reporter, durable, began)
    return lambda: prove_language(order, subject, size, store, reporter, durable, began)


def _wait_for_proof(order: Order, meeting: Meeting, store: Store, reporter: Reporter) -> None:
    try:
        meeting.await_finish(lambda: reporter.alive("rank 0 evaluates"))
    except PeerLost:
        if not already_proven(order, store.manifest()):  # rank 0 may have finished between two looks
            raise


def _abandon(reason: str, saver: Saver) -> None:
    """From rank 0's watching thread: the group is dead although no connection broke yet (a node vanished)."""
    saver.flush(5.0)
    try:
        rejoin(reason)
    except TrainerError as error:
        say(str(error))
        os._exit(error.exit_code)


def summary(manifest: Manifest) -> str:
    """The result in one sentence."""
    after, before, judged = manifest.evaluation, manifest.baseline, manifest.off_policy
    if judged is not None and not judged.verdict:
        return f"trained, but nobody knows how well: no verdict from {judged.episodes} logged episodes"
    how = "held-out" if judged is None else "estimated"
    return (
        f"{how} return {after.mean:.1f} [{after.ci_low:.1f}, {after.ci_high:.1f}] against {before.mean:.1f} "
        f"for the baseline, after {manifest.step} steps in {manifest.wall_seconds:.1f} s"
    )
