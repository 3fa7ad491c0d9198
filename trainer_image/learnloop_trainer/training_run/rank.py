"""One rank's whole life: meet the others, train, prove, and leave with the right exit code."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from learnloop_api import names
from learnloop_api.wire.training import Proof, ValidationReport
from learnloop_environments import errors, user_environment
from learnloop_trainer import baseline_policy, distributed, progress_reporter, tracking, training_order
from learnloop_trainer.errors import PeerLost, Terminated
from learnloop_trainer.store import Store, choose, data_plane_store
from learnloop_trainer.training_run import (
    continuous,
    language_proof,
    language_training,
    policy_proof,
    reward_model_proof,
)
from learnloop_trainer.training_run.checkpoints import Saver
from learnloop_trainer.training_run.proof import Exported, proven
from learnloop_trainer.training_run.training_loop import FLUSH_SECONDS, Run, Session, Stopper, Training

BEGAN = "LEARNLOOP_BEGAN"


def pick_device(place: training_order.Place) -> torch.device:
    """The pod's GPU when there is one, else the CPU; with deterministic kernels either way."""
    torch.backends.cudnn.benchmark = False
    if not torch.cuda.is_available():
        return torch.device("cpu")
    index = place.rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def already_proven(order: training_order.Order, proof: Proof | None) -> bool:
    """Is the run finished? A proof left behind by another run of the same name does not count."""
    if proof is None:
        return False
    same = proof.recipe_sha256 == training_order.recipe_sha256(order)
    if not same and proof.update == order.number:
        progress_reporter.say(f"a proof of another run was found under the name {order.job} and will be replaced")
    return same


def adopted(order: training_order.Order, place: training_order.Place, store: Store) -> bool:
    """Is the run finished? A proof by an earlier attempt, whose gang failed after it, becomes this attempt's."""
    proof = store.proof()
    if proof is None or not already_proven(order, proof):
        return False
    attempts = order.attempt + 1
    if place.rank == 0 and proof.attempts < attempts:
        store.put_proof(proof.model_copy(update={"attempts": attempts}))
    return True


Life = Callable[[Run, training_order.Place], None]
"""Trains and proves, alone or with the other ranks."""


def run(order: training_order.Order, place: training_order.Place, threads: int, life: Life | None = None) -> None:
    """Return when the proof is durable; raises TrainerError or Terminated for every other end.

    A rank that stays makes updates until it is stopped. `life`: of an engine; left out, that of learnloop's own
    learners.
    """
    began = float(os.environ.setdefault(BEGAN, str(time.time())))
    store, stopper = choose(os.environ, order.job, order.agent, order.attempt), Stopper()
    user_environment.use(os.environ)
    stopper.install()
    whole, saver, life = continuous.as_run(order), Saver(store), life or together
    order = continuous.current(whole, store)
    while True:
        _make(order, place, store, saver, stopper, began, threads, life)
        if order.spec.continuous is None:
            return
        order, began = continuous.following(whole, order, store), time.time()


def _make(
    order: training_order.Order,
    place: training_order.Place,
    store: Store,
    saver: Saver,
    stopper: Stopper,
    began: float,
    threads: int,
    life: Life,
) -> None:
    """Make one run, or one update."""
    if adopted(order, place, store):
        progress_reporter.say("this run's proof is already durable: nothing to do")
        return
    reporter = progress_reporter.Reporter(
        order, place, store, tracking.tracker(order, os.environ, os.environ.get(names.ENV_NAMESPACE, ""))
    )
    saver.tell = reporter.warn
    if isinstance(store, data_plane_store.DataPlaneStore):
        store.follow(reporter.reading, reporter.warn)
    reporter.start(store.newest_heartbeat() if order.update is None else None)  # an update counts its steps from 0
    errors.on_abandon(lambda sentence: reporter.finish("failed", sentence))
    device = pick_device(place)
    reporter.phase("starting", f"{threads} thread(s), {device}, torch {torch.__version__}")
    try:
        order = baseline_policy.with_fallback(order, store)
        life(Run(order, distributed.Alone(), device, store, reporter, saver, stopper, began), place)
    except PeerLost as error:
        if stopper.requested:
            raise Terminated("SIGTERM: leaving, a peer was lost at the same time") from None
        saver.flush(10.0)
        _rejoin(error, reporter)
    except Terminated:
        saver.flush(FLUSH_SECONDS)  # SIGTERM after training: the final checkpoint may still be under way
        raise
    except errors.TrainerError as error:
        reporter.finish("failed", str(error))
        raise


def _rejoin(error: PeerLost, reporter: progress_reporter.Reporter) -> None:
    try:
        distributed.rejoin(str(error))
    except errors.TrainerError as late:
        reporter.finish("failed", str(late))
        raise


Begin = Callable[..., language_training.LanguageTraining]


def together(run: Run, place: training_order.Place, begin_language: Begin = language_training.begin_language) -> None:
    """The life of ranks that train as one. `begin_language`: makes the training of a language model at step 0."""
    meeting: distributed.Meeting | None = None
    if place.size > 1:
        meeting = distributed.meet(place, run.reporter.alive)
        if place.rank == 0:
            meeting.watch(lambda reason: _abandon(reason, run.saver))
        peers = distributed.Peers(meeting, run.device)
        run = replace(run, group=peers)
        progress_reporter.say(f"{place.size} ranks meet by {peers.transport}")
    prove = _trained(run, begin_language)
    if meeting is None or place.rank == 0:
        proof = prove()
        run.reporter.proven(proof)
        run.reporter.finish("done", summary(proof))
        if meeting is not None:
            meeting.announce()
    else:
        _wait_for_proof(run.order, meeting, run.store, run.reporter)
    distributed.settled()
    run.group.close()


def _trained(run: Run, begin_language: Begin) -> Callable[[], Proof]:
    """Train; returns the proof, for rank 0 to make. What learns from recorded steps reads them in its first
    round (agent_logs.py), and its checkpoints hold them."""
    algorithm = run.order.parameters.algorithm
    prover: Callable[[], Exported]
    training: Training
    if algorithm.language:
        run.reporter.alive("loading the base model")
        training = model = Session(run, begin_language).train()
        prover = partial(
            reward_model_proof.prove_reward_model if algorithm.scores_answers else language_proof.prove_language,
            run,
            model,
        )
    else:
        training = policy = Session(run, continuous.begin).train()
        policy.environment.close()
        prover = partial(policy_proof.prove_policy, run, policy)
    validated = _validated(run.order, training)
    return lambda: proven(run, training, validated, prover())


def _validated(order: training_order.Order, training: Training) -> ValidationReport | None:
    """Results of evaluation along training; the learner has the best weights then, where they are exported."""
    if training.validation is None:
        return None
    best = order.spec.export.policy == "best"
    if best:
        training.validation.keep_best()
    return training.validation.report(best, training.learner.step, order.spec.total_steps)


def _wait_for_proof(
    order: training_order.Order, meeting: distributed.Meeting, store: Store, reporter: progress_reporter.Reporter
) -> None:
    try:
        meeting.await_finish(lambda: reporter.alive("rank 0 evaluates"))
    except PeerLost:
        if not already_proven(order, store.proof()):  # rank 0 may have finished between two looks
            raise


def _abandon(reason: str, saver: Saver) -> None:
    """From rank 0's watching thread: the group is dead although no connection broke yet (a node vanished)."""
    saver.flush(5.0)
    try:
        distributed.rejoin(reason)
    except errors.TrainerError as error:
        progress_reporter.say(str(error))
        os._exit(error.exit_code)


def summary(proof: Proof) -> str:
    after, before, judged = proof.evaluation, proof.baseline, proof.off_policy
    if judged is not None and not judged.verdict:
        return f"trained, but not judged: no verdict from {judged.episodes} logged episodes"
    how = "held-out" if judged is None else "estimated"
    return (
        f"{how} return {after.mean:.1f} [{after.ci_low:.1f}, {after.ci_high:.1f}] against {before.mean:.1f} "
        f"for the baseline, after {proof.step} steps in {proof.wall_seconds:.1f} s"
    )
