"""Updates by a rank that stays: what each is to do, and the state from which it goes on.

An update is a run of its own with the job's name: it has its own seed, held-out episodes, checkpoints and proof.
"""

import time

import numpy as np
import torch

from learnloop_api.kinds.training import evaluation, study
from learnloop_api.wire.training import UpdateOrder
from learnloop_environments import wrappers
from learnloop_trainer import distributed, errors, progress_reporter, store, training_order
from learnloop_trainer.store.run_store import part, unpack
from learnloop_trainer.training_run import checkpoints, policy_training

POLL_SECONDS, LONGEST_POLL_SECONDS, LONGER = 0.5, 5.0, 1.2
"""Of the pauses between two looks for an order: the first, the longest, and the factor between two."""
REFUSALS = 20
"""Refusals in a row that end an idle rank."""
SEEDS = 2**31
FROM_LOG = "recording."
"""Beginning of the names of logged steps in a learner's state; an update reads the log again."""


def as_run(order: training_order.Order) -> training_order.Order:
    """The order without the number of its newest update, which the recipe leaves out."""
    if order.spec.continuous is None:
        return order
    plain = order.spec.continuous.model_copy(update={"update": 0})
    return order.model_copy(update={"spec": order.spec.model_copy(update={"continuous": plain})})


def of_update(run: training_order.Order, update: UpdateOrder) -> training_order.Order:
    """The order of one update of a run. No other update or run of the agent plays its held-out episodes."""
    spec, proof, continuous = run.spec, run.spec.evaluation, run.spec.continuous
    assert continuous is not None
    episodes = {
        "seed": spec.seed if proof.seed is None else proof.seed,
        "first_episode": (proof.first_episode or 0) + update.number * evaluation.EPISODES_PER_RUN,
    }
    changes = {
        "seed": (spec.seed + update.number) % SEEDS,
        "total_steps": continuous.steps,
        "evaluation": proof.model_copy(update=episodes),
        "initial_policy": study.InitialPolicy(serving=True, required=False),
    }
    policy = None
    if update.reward_policy and update.reward_policy_revision:
        policy = training_order.RewardPolicyRevision(name=update.reward_policy, revision=update.reward_policy_revision)
    facts = {"baseline_uri": update.baseline_uri, "baseline_sha256": update.baseline_sha256, "reward_policy": policy}
    return run.model_copy(update={**facts, "spec": spec.model_copy(update=changes), "update": update})


def current(run: training_order.Order, data: store.Store) -> training_order.Order:
    """The newest order: after a restart, an update may be under way."""
    update = data.update() if run.spec.continuous is not None else None
    return run if update is None else of_update(run, update)


def following(run: training_order.Order, last: training_order.Order, data: store.Store) -> training_order.Order:
    """Wait for the update after `last`; a store that is away, or refuses for a while, is asked again."""
    progress_reporter.say(f"update {last.number} is proven; waits for the next one")
    pause, refusals = POLL_SECONDS, 0
    while True:
        try:
            update, refusals = data.update(), 0
        except (errors.StoreUnavailable, errors.StoreRefused) as error:
            refusals = refusals + 1 if isinstance(error, errors.StoreRefused) else 0
            if refusals == REFUSALS:
                raise
            progress_reporter.say(str(error))
            update = None
        if update is not None and update.number > last.number:
            return of_update(run, update)
        time.sleep(pause)
        pause = min(LONGEST_POLL_SECONDS, pause * LONGER)


def begin(
    order: training_order.Order, group: distributed.Group, device: torch.device, data: store.Store
) -> policy_training.PolicyTraining:
    """A training at step 0; an update that goes on has the weights, critics, optimiser and replay of the last one."""
    training = policy_training.begin(order, group, device, data)
    body = checkpoints.newest(data) if order.update is not None and order.update.goes_on else None
    if body is not None:
        _go_on(training, order, body)
    return training


def _go_on(training: policy_training.PolicyTraining, order: training_order.Order, body: bytes) -> None:
    arrays, metadata = unpack(body)
    if metadata.get(checkpoints.UPDATE) != str(order.number - 1):
        progress_reporter.say("the state after the last update is gone: goes on from the policy that serves")
        return
    shared = {name: array for name, array in part(arrays, "shared").items() if not name.startswith(FROM_LOG)}
    shared |= {"step": np.asarray([0], dtype=np.int64), "warm": np.asarray([True])}
    if "memory.loaded" in shared:
        shared["memory.loaded"] = np.asarray([False])
    training.learner.restore(shared, part(part(arrays, "each"), "own"))
    if training.curriculum is not None:
        training.curriculum.restore(part(arrays, "curriculum"))
        wrappers.innermost(training.environment).level = training.curriculum.level
    if training.penalties is not None and "multipliers" in arrays:
        training.penalties.values = np.array(arrays["multipliers"], dtype=np.float64)
    training.begun_from = f"the state after update {order.number - 1}"
    progress_reporter.say(f"goes on from {training.begun_from}")
