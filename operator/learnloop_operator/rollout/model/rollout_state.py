"""The rollout's memory: exactly what the status persists, in the form decisions work with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from learnloop_api.kinds.model_deployment import ArmStatus, BlockedRevision, ModelDeploymentStatus
from learnloop_api.kinds.rollouts.anchor import AnchorFigure
from learnloop_api.kinds.rollouts.decision import AnsweredDecision, Hand, PastModel
from learnloop_api.kinds.rollouts.gates import GatesStatus
from learnloop_api.kinds.rollouts.override import OverrideStatus
from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_operator.core.times import parse, stamp
from learnloop_operator.rollout.checks.dry_run_metrics import DryRunReport
from learnloop_operator.rollout.checks.paired_outcomes import PairedOutcomes
from learnloop_operator.rollout.checks.sequential_test import SequentialTest
from learnloop_operator.rollout.model import evidence_codec
from learnloop_operator.rollout.model.blocked_models import Pins, in_the_way
from learnloop_operator.rollout.model.blocked_models import load as load_pins
from learnloop_operator.rollout.model.experiment_state import ExperimentState as Experiment
from learnloop_operator.rollout.model.experiment_state import load as load_experiment
from learnloop_operator.rollout.model.snapshot import ArmWorld, Model


@dataclass(frozen=True, slots=True)
class ArmState:
    """An arm the rollout knows of. `since`: when its readiness last changed."""

    model: Model
    since: str
    was_ready: bool = False

    @property
    def revision(self) -> str:
        return self.model.revision


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
    """Episodes of the canary that do not count for the step; None see judging/episodes_of_step.py."""
    rollout_started_at: str | None = None
    promoted_at: str | None = None
    pins: Pins = ()
    """What was rolled back and is not tried again, oldest first."""
    hand: Hand | None = None
    """A person's order that is in force for the canary."""
    last_stable: PastModel | None = None
    decisions: tuple[AnsweredDecision, ...] = ()
    """What people said and what became of it, newest last."""
    trials: tuple[SequentialTest, ...] = ()
    """The sequential tests of the rollout under way."""
    ratios: tuple[PairedOutcomes, ...] = ()
    """What ratios have compared in the rollout under way."""
    reports: tuple[DryRunReport, ...] = ()
    """What the dry runs say."""
    experiment: Experiment | None = None
    """The experiment under way, or the last one."""
    gates: GatesStatus | None = None
    """What the gates have found of the last candidate."""
    anchor: tuple[AnchorFigure, ...] = ()
    """What no model may be much worse than, whatever is promoted meanwhile."""
    overrides: tuple[OverrideStatus, ...] = ()
    """Where people decide in the policy's place, or did within a day."""

    @property
    def blocked(self) -> BlockedRevision | None:
        """What was rolled back last."""
        return self.pins[-1] if self.pins else None

    def in_the_way(self, model: Model | None) -> BlockedRevision | None:
        """Why the model is not tried; None: it may be."""
        return in_the_way(self.pins, model, self.stable.model if self.stable else None)

    def arms(self) -> tuple[ArmState, ...]:
        """The arms whose pods must exist."""
        players = self.experiment.guests() if self.experiment else ()
        known = tuple([arm for arm in (self.stable, self.canary, self.previous) if arm])
        return (
            (*known, *(ArmState(player.model, player.since, player.ready) for player in players)) if players else known
        )

    def as_seen(self, arms: Mapping[str, ArmWorld], now: datetime) -> "State":
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
        return max((at for at in map(parse, changes) if at), default=None)

    def at_weight(self, weight: int, step_base: int | None, now: datetime) -> "State":
        """The canary gets another share: no test bets on what ended before and after."""
        trials = tuple(replace(trial, memory=replace(trial.memory, seen=None)) for trial in self.trials)
        return replace(self, weight=weight, step_started_at=stamp(now), step_base=step_base, trials=trials)

    def without_canary(self) -> "State":
        """The same rollout with the canary gone: weight 0 and no step."""
        return replace(
            self,
            canary=None,
            step=None,
            weight=0,
            step_started_at=None,
            step_base=0,
            trials=(),
            ratios=(),
            reports=(),
            hand=None,
            gates=self.gates if self.gates and self.gates.judged_at else None,
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
        pins=load_pins(status),
        hand=status.hand if canary else None,
        last_stable=status.last_stable,
        decisions=tuple(status.decisions or ()),
        trials=evidence_codec.load(status.evidence or ()) if step is not None else (),
        ratios=evidence_codec.load_ratios(status.evidence or ()) if step is not None else (),
        reports=evidence_codec.load_reports(status.evidence or ()),
        experiment=load_experiment(status.experiment),
        gates=status.gates,
        anchor=tuple(status.anchor or ()),
        overrides=tuple(status.overrides or ()),
    )


def past(arm: ArmState | None) -> PastModel | None:
    """The arm's model as something to go back to."""
    return PastModel(uri=arm.model.uri, sha256=arm.model.sha256) if arm else None


def observe(arm: ArmState, world: ArmWorld | None, now: datetime) -> ArmState:
    """The arm with `since` moved when its readiness has changed."""
    ready = world is not None and world.ready > 0
    return arm if ready == arm.was_ready else replace(arm, was_ready=ready, since=stamp(now))


def _step(step: int, reached: int | None, weight: int, steps: list[RolloutStep]) -> int:
    """Where a canary at `weight` stands whose step asked for `reached` percent when it was reached.

    Steps that were edited since may ask for another weight at the same index: what was proven at this weight earns
    none above it, so the canary goes on at the last step that asks for no more. Of several that ask for as much it is
    the first, for the others may wait for a person; where all ask for more it begins with the first step, as a new one.
    """
    found = max(0, min(step, len(steps) - 1))
    asked = steps[found].weight
    if asked == reached or (reached is None and (found == step or asked <= weight)):
        return found
    earned = max((item.weight for item in steps if item.weight <= weight), default=None)
    return next((index for index, item in enumerate(steps) if item.weight == earned), 0)


def _arm(status: ArmStatus | None) -> ArmState | None:
    if status is None:
        return None
    model = Model(status.revision, status.uri, status.sha256)
    return ArmState(model, status.since or "", bool(status.ready_replicas))
