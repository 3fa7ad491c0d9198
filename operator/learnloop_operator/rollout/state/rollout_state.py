"""The memory of a rollout: exactly what the status persists, and the result of one look."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from learnloop_api.kinds.model_deployment import ArmStatus, BlockedRevision, ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.kinds.rollouts.gates import GatesStatus
from learnloop_api.kinds.rollouts.rollout_steps import (
    AnsweredDecision,
    OverrideStatus,
    PastModel,
    RolloutStep,
    StandingOrder,
)
from learnloop_operator.core import artifacts, plan, times
from learnloop_operator.rollout.checks.against_stable import Comparison, load_comparisons
from learnloop_operator.rollout.state.experiment_state import ExperimentState, load_experiment
from learnloop_operator.rollout.state.snapshot import LiveArm, Model

MOST = 256
"""Entries of status.blockedRevisions. The one that was rolled back longest ago leaves first."""
SHORT = 128
"""Characters kept of the message of every entry but the newest."""

COMPLETE = ""
"""Nothing is missing of the evidence."""
Blocks = tuple[BlockedRevision, ...]


def load_blocks(status: ModelDeploymentStatus) -> Blocks:
    """Oldest first."""
    return tuple(status.blocked_revisions or ())


def with_block(blocks: Blocks, block: BlockedRevision) -> Blocks:
    """The list with one more at its end; an earlier entry of the same revision goes."""
    before = tuple(_shortened(old) for old in blocks if old.revision != block.revision)
    return (*before[-(MOST - 1) :], block)


def without(blocks: Blocks, gone: BlockedRevision) -> Blocks:
    """The list without exactly this entry."""
    return tuple(block for block in blocks if block.revision != gone.revision)


def of_revision(blocks: Blocks, revision: str | None) -> BlockedRevision | None:
    """The entry of exactly this revision."""
    return next((block for block in blocks if block.revision == revision), None)


def in_the_way(blocks: Blocks, model: Model | None, stable: Model | None) -> BlockedRevision | None:
    """The entry that blocks the model: its own, else the newest of its artifact.

    Where stable serves the same artifact, not the artifact was at fault but the pods it ran with: other pods are tried.
    """
    if model is None:
        return None
    if own := of_revision(blocks, model.revision):
        return own
    if stable is not None and artifacts.same(stable.uri, stable.sha256, model.uri, model.sha256):
        return None
    return artifacts.rolled_back(blocks, model.uri, model.sha256)


def shown(blocks: Blocks, model: Model | None, stable: Model | None) -> BlockedRevision | None:
    """The entry that people see first: what is in the way of the wished model, else the newest."""
    return in_the_way(blocks, model, stable) or next(reversed(blocks), None)


def why_blocked(block: BlockedRevision, model: Model) -> str:
    """Why the model is not tried."""
    if block.revision == model.revision:
        return block.message
    return f"{model.revision} is the model of {block.revision}, with other pods or at another address: {block.message}"


def named(blocks: Iterable[BlockedRevision]) -> str:
    """Their revisions, for a sentence."""
    return ", ".join(block.revision for block in blocks)


def _shortened(block: BlockedRevision) -> BlockedRevision:
    if len(block.message) <= SHORT:
        return block
    return block.model_copy(update={"message": block.message[: SHORT - 1] + "…"})


# The rollout's memory: exactly what the status persists, in the form decisions work with.


@dataclass(frozen=True, slots=True)
class ArmState:
    """An arm the rollout knows of. `since`: when its readiness last changed."""

    model: Model
    since: str
    was_ready: bool = False

    @property
    def revision(self) -> str:
        return self.model.revision


def canary_replicas(spec: ModelDeploymentSpec, step: int | None) -> int:
    """Pods of the canary at `step`: its share of the stable arm's, so that 100 % finds a full-grown arm."""
    weight = spec.rollout.steps[step or 0].weight
    return max(spec.serving.canary_replicas, math.ceil(spec.serving.replicas * weight / 100))


@dataclass(frozen=True, slots=True)
class State:
    """Everything that must survive a restart. `weight` is what the routing table was last allowed to give."""

    stable: ArmState | None = None
    canary: ArmState | None = None
    previous: ArmState | None = None
    step: int | None = None
    weight: int = 0
    step_started_at: str | None = None
    step_base: int | None = 0
    """Episodes of the canary that do not count for the step; None: see judging/watched_arms.py."""
    rollout_started_at: str | None = None
    promoted_at: str | None = None
    blocks: Blocks = ()
    """Revisions that were rolled back and are not tried again, oldest first."""
    standing_order: StandingOrder | None = None
    """A person's order that is in force for the canary."""
    last_stable: PastModel | None = None
    decisions: tuple[AnsweredDecision, ...] = ()
    """Orders of people with their results, newest last."""
    comparisons: tuple[Comparison, ...] = ()
    """Comparisons of the rollout under way with stable."""
    experiment: ExperimentState | None = None
    """The experiment under way, or the last one."""
    gates: GatesStatus | None = None
    """Results of the last candidate's gates."""
    overrides: tuple[OverrideStatus, ...] = ()
    """Overrides by people, in force or ended within a day."""

    @property
    def blocked(self) -> BlockedRevision | None:
        """The newest rollback."""
        return self.blocks[-1] if self.blocks else None

    def in_the_way(self, model: Model | None) -> BlockedRevision | None:
        """Why the model is not tried; None: it may be."""
        return in_the_way(self.blocks, model, self.stable.model if self.stable else None)

    @property
    def challenger_count(self) -> int:
        """Arms that an experiment still compares with stable."""
        return len(self.experiment.challengers()) if self.experiment else 0

    def arms(self) -> tuple[ArmState, ...]:
        """The arms whose pods must exist."""
        players = self.experiment.challengers() if self.experiment else ()
        challengers = [ArmState(player.model, player.since, player.ready) for player in players]
        return tuple(arm for arm in (self.stable, self.canary, self.previous, *challengers) if arm)

    def replicas(self, spec: ModelDeploymentSpec, revision: str) -> int:
        """Pods the arm should have. An old arm keeps its size: it may have to return."""
        if self.canary and self.canary.revision == revision:
            return canary_replicas(spec, self.step)
        trial, serving = self.experiment, spec.serving
        for player in trial.challengers() if trial else ():
            if player.model.revision == revision:
                # A winner grows before it is promoted: 100 % find a full-grown arm.
                share = 100 if trial and trial.phase == "Won" else player.weight
                return max(serving.canary_replicas, math.ceil(serving.replicas * share / 100))
        return serving.replicas

    def with_readiness(self, arms: Mapping[str, LiveArm], now: datetime) -> "State":
        """The same with the arms' readiness as it is now; itself where none has changed."""
        before = (self.stable, self.canary, self.previous)
        stable, canary, previous = [arm and observe(arm, arms.get(arm.revision), now) for arm in before]
        if stable is self.stable and canary is self.canary and previous is self.previous:
            return self
        return replace(self, stable=stable, canary=canary, previous=previous)

    def shares_since(self) -> datetime | None:
        """When an arm last got other episodes: another share of the new ones, or an override began or ended."""
        trial = self.experiment
        changes = [self.step_started_at if self.canary else None]
        changes += [trial.started_at, *(player.since for player in trial.players)] if trial else []
        changes += [at for item in self.overrides for at in (item.since, item.until if item.over else None)]
        return max((at for at in map(times.parse, changes) if at), default=None)

    def at_weight(self, weight: int, step_base: int | None, now: datetime) -> "State":
        """The canary gets another share: no test bets on what ended before and after."""
        fresh = tuple(replace(item, memory=replace(item.memory, counted=None)) for item in self.comparisons)
        return replace(self, weight=weight, step_started_at=times.stamp(now), step_base=step_base, comparisons=fresh)

    def without_canary(self) -> "State":
        """The same rollout with the canary gone: weight 0 and no step."""
        return replace(
            self,
            canary=None,
            step=None,
            weight=0,
            step_started_at=None,
            step_base=0,
            comparisons=(),
            standing_order=None,
            gates=self.gates if self.gates and self.gates.judged_at else None,
        )

    def promoted(self, arm: ArmState, now: datetime) -> "State":
        """The same with this arm as stable; the one that was stays warm."""
        old = self.stable
        return replace(
            self.without_canary(), stable=arm, previous=old, last_stable=past(old), promoted_at=times.stamp(now)
        )


def load(status: ModelDeploymentStatus, steps: list[RolloutStep]) -> State:
    """The persisted state, at the step that the steps of now make of it; a status without the needed times, edited by
    hand, starts the canary over."""
    canary = _arm(status.canary)
    step = status.step if canary and status.step is not None else None
    return State(
        stable=_arm(status.stable),
        canary=canary,
        previous=_arm(status.previous),
        step=None if step is None else _step(step, status.step_weight, status.weight or 0, steps),
        weight=(status.weight or 0) if step is not None else 0,
        step_started_at=status.step_started_at if canary else None,
        step_base=status.step_base_episodes if canary else 0,
        rollout_started_at=status.rollout_started_at,
        promoted_at=status.promoted_at,
        blocks=load_blocks(status),
        standing_order=status.standing_order if canary else None,
        last_stable=status.last_stable,
        decisions=tuple(status.decisions or ()),
        comparisons=load_comparisons(status.evidence or ()) if step is not None else (),
        experiment=load_experiment(status.experiment),
        gates=status.gates,
        overrides=tuple(status.overrides or ()),
    )


def past(arm: ArmState | None) -> PastModel | None:
    """The arm's model as something to go back to."""
    return PastModel(uri=arm.model.uri, sha256=arm.model.sha256) if arm else None


def observe(arm: ArmState, live: LiveArm | None, now: datetime) -> ArmState:
    """The arm with `since` moved when its readiness has changed."""
    ready = live is not None and live.ready > 0
    return arm if ready == arm.was_ready else replace(arm, was_ready=ready, since=times.stamp(now))


def _step(step: int, reached: int | None, weight: int, steps: list[RolloutStep]) -> int:
    """The step of a canary at `weight` whose step asked for `reached` percent when it was reached.

    Steps that were edited since may ask for another weight at the same index: what was proven at this weight earns
    none above it, so the canary continues at the last step that asks for no more. Of several that ask for as much it is
    the first, for the others may wait for a person; where all ask for more it begins with the first step, as a new one.
    """
    result = max(0, min(step, len(steps) - 1))
    wanted = steps[result].weight
    if wanted == reached or (reached is None and (result == step or wanted <= weight)):
        return result
    earned = max((item.weight for item in steps if item.weight <= weight), default=None)
    return next((index for index, item in enumerate(steps) if item.weight == earned), 0)


def _arm(status: ArmStatus | None) -> ArmState | None:
    if status is None:
        return None
    model = Model(status.revision, status.uri, status.sha256)
    return ArmState(model, status.since or "", bool(status.ready_replicas))


# The result of one look at a rollout: the next state and the sentence why.


@dataclass(frozen=True, slots=True)
class NextState:
    """The next state of a rollout, and how to report it."""

    state: State
    phase: str
    reason: str
    sentence: str
    events: tuple[plan.Notice, ...] = ()
    again_after: float | None = None
    """Seconds until the next look even when nothing happens; None: the next event is enough."""
    keep_table: bool = False
    """Do not touch the routing table in this pass: the new state has to be persisted first."""
    degraded: bool = False
    """Something serves worse than it should, or nothing serves at all, and waiting alone will not mend it."""
    missing: str | None = None
    """Evidence that is missing, in words, or COMPLETE; None when none is needed."""
    missing_reason: str = ""
    """The constant for it where it is not the move's own reason."""


def happened(reason: str, sentence: str, *, warning: bool = False) -> tuple[plan.Notice, ...]:
    """One event."""
    return (plan.Notice("Warning" if warning else "Normal", reason, sentence[:1024]),)


def done(
    state: State,
    phase: str,
    reason: str,
    sentence: str,
    *,
    warning: bool = False,
    again_after: float = 0.0,
    keep_table: bool = False,
    missing: str | None = None,
) -> NextState:
    """A change, with its event for the same reason."""
    events = happened(reason, sentence, warning=warning)
    return NextState(state, phase, reason, sentence, events, again_after, keep_table, missing=missing)


def wait(state: State, reason: str, sentence: str, after: float, missing: str = COMPLETE) -> NextState:
    """Stay where it is. `missing`: as NextState has it."""
    return NextState(state, "Progressing", reason, sentence, again_after=after, missing=missing)
