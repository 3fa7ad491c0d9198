"""One rank's whole life: meet the others, train, prove, and leave with the right exit code."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from learnloop_api import names
from learnloop_api.wire.training import Manifest, Validated
from learnloop_environments import own_code
from learnloop_environments.errors import TrainerError, on_abandon
from learnloop_trainer.distributed.torch_group import Alone, Meeting, Peers, meet, rejoin, settled
from learnloop_trainer.errors import PeerLost, Terminated
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.run import FLUSH_SECONDS, Run, Saver, Stopper
from learnloop_trainer.store import Store, choose
from learnloop_trainer.store.dataplane import DataPlaneStore
from learnloop_trainer.tracking import tracker
from learnloop_trainer.training_order import Order, Place, recipe_sha256
from learnloop_trainer.training_run.language_proof import prove_language
from learnloop_trainer.training_run.language_training import begin_language
from learnloop_trainer.training_run.policy_proof import prove_policy
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.proof import Proof, proven
from learnloop_trainer.training_run.reward_model_proof import prove_reward_model
from learnloop_trainer.training_run.session import Session, Training

BEGAN = "LEARNLOOP_BEGAN"


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
        _together(Run(order, Alone(), device, store, reporter, saver, stopper, began), place)
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


def _together(run: Run, place: Place) -> None:
    meeting: Meeting | None = None
    if place.size > 1:
        meeting = meet(place, run.reporter.alive)
        if place.rank == 0:
            meeting.watch(lambda reason: _abandon(reason, run.saver))
        peers = Peers(meeting, run.device)
        run = replace(run, group=peers)
        say(f"{place.size} ranks meet by {peers.transport}")
    prove = _trained(run)
    if meeting is None or place.rank == 0:
        manifest = prove()
        run.reporter.proven(manifest)
        run.reporter.finish("done", summary(manifest))
        if meeting is not None:
            meeting.announce()
    else:
        _wait_for_proof(run.order, meeting, run.store, run.reporter)
    settled()
    run.group.close()


def _trained(run: Run) -> Callable[[], Manifest]:
    """Train; returns the proof, for rank 0 to make."""
    algorithm = run.order.parameters.algorithm
    prover: Callable[[], Proof]
    training: Training
    if algorithm.language:
        run.reporter.alive("loading the base model")
        training = model = Session(run, begin_language).train()
        prover = partial(prove_reward_model if algorithm.scores_answers else prove_language, run, model)
    else:
        training = policy = Session(run, begin).train()
        policy.environment.close()
        prover = partial(prove_policy, run, policy)
    validated = _validated(run.order, training)
    return lambda: proven(run, training, validated, prover())


def _validated(order: Order, training: Training) -> Validated | None:
    """Results of evaluation along training; the learner has the best weights then, where they are exported."""
    if training.validation is None:
        return None
    best = order.spec.export.policy == "best"
    if best:
        training.validation.keep_best()
    return training.validation.told(best, training.learner.step, order.spec.total_steps)


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
    after, before, judged = manifest.evaluation, manifest.baseline, manifest.off_policy
    if judged is not None and not judged.verdict:
        return f"trained, but not judged: no verdict from {judged.episodes} logged episodes"
    how = "held-out" if judged is None else "estimated"
    return (
        f"{how} return {after.mean:.1f} [{after.ci_low:.1f}, {after.ci_high:.1f}] against {before.mean:.1f} "
        f"for the baseline, after {manifest.step} steps in {manifest.wall_seconds:.1f} s"
    )
