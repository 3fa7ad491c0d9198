"""Pods of an arm: how many it should have, how many are ready, and whether they ever will be."""

import math

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.core import times
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import LiveArm, Snapshot

DRAIN_SECONDS = 5.0
"""A withdrawn arm lives on so long to answer 410 to the episodes it still had, which then reopen on stable."""
GIVE_UP_RESTARTS = 3
"""A container that has died this often with a sentence on its lips is not going to start."""


def canary_replicas(spec: ModelDeploymentSpec, step: int | None) -> int:
    """Pods of the canary at `step`: its share of the stable arm's, so that 100 % finds a full-grown arm."""
    weight = spec.rollout.steps[step if step is not None else 0].weight
    return max(spec.serving.canary_replicas, math.ceil(spec.serving.replicas * weight / 100))


def replicas(snapshot: Snapshot, state: State, revision: str) -> int:
    """Pods the arm `revision` should have under `state`. An old arm keeps its size: it may have to return."""
    if state.canary and state.canary.revision == revision:
        return canary_replicas(snapshot.spec, state.step)
    trial, serving = state.experiment, snapshot.spec.serving
    for player in trial.challengers() if trial else ():
        if player.model.revision == revision:
            # A winner grows before it is promoted: 100 % find a full-grown arm.
            share = 100 if trial and trial.phase == "Won" else player.weight
            return max(serving.canary_replicas, math.ceil(serving.replicas * share / 100))
    return serving.replicas


def ready(snapshot: Snapshot, revision: str) -> int:
    """Ready pods of the arm."""
    return live_arm(snapshot, revision).ready


def live_arm(snapshot: Snapshot, revision: str) -> LiveArm:
    """The arm as the cluster has it; an absent one has no pods."""
    return snapshot.arms.get(revision) or LiveArm()


def look_at_pods(snapshot: Snapshot, revision: str) -> float:
    """Seconds until another look at an arm whose pods are not ready. Where none was made yet none can say anything:
    why none is made, and that one is there, its Deployment tells."""
    arm = snapshot.arms.get(revision)
    if arm is not None and not arm.replicas:
        return times.LATEST
    return times.next_look(arm.unready_since if arm else None, snapshot.now)


def hopeless(arm: LiveArm) -> bool:
    """Whether the pods have said, often enough, why they cannot serve this model."""
    return arm.ready == 0 and arm.restarts >= GIVE_UP_RESTARTS and bool(arm.message)
