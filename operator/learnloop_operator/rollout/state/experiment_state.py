"""The state of an experiment, as the status persists it."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import (
    Experiment,
    ExperimentArmStatus,
    ExperimentMetric,
    ExperimentStatus,
)
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.checks.metric_types import type_of
from learnloop_operator.rollout.evidence import number
from learnloop_operator.rollout.state.snapshot import LiveArm, Model
from learnloop_operator.statistics import canary_against_stable, e_values, several_arms

Standing = Literal["playing", "beaten", "withdrawn"]
Phase = Literal["Starting", "Running", "Won", "Finished"]
STABLE = "stable"


@dataclass(frozen=True, slots=True)
class Player:
    """One arm of the experiment; the first one is stable."""

    name: str
    model: Model
    weight: int
    standing: Standing = "playing"
    ready: bool = False
    since: str = ""
    message: str = ""
    tally: several_arms.ArmRecord = field(default_factory=several_arms.ArmRecord)

    def out(self, standing: Standing, why: str, now: datetime) -> "Player":
        return replace(self, standing=standing, message=why, since=stamp(now))

    def observed(self, live: LiveArm | None, now: datetime) -> "Player":
        ready = live is not None and live.ready > 0
        return self if ready == self.ready else replace(self, ready=ready, since=stamp(now))


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """The experiment that runs or ran last."""

    id: str
    phase: Phase
    players: tuple[Player, ...]
    started_at: str | None = None
    finished_at: str | None = None
    winner: str | None = None
    promoted_over: str | None = None
    approved_by: str | None = None
    message: str = ""

    @property
    def running(self) -> bool:
        """Arms of it have pods."""
        return self.phase != "Finished"

    def challengers(self) -> tuple[Player, ...]:
        """The challengers that are still in it: their pods must exist."""
        return tuple(player for player in self.players[1:] if player.standing == "playing") if self.running else ()

    def shares(self) -> dict[str, int]:
        """Percent of new episodes by revision of each challenger; an arm without pods has 0."""
        if self.phase not in ("Running", "Won"):
            return {}
        return {player.model.revision: player.weight if player.ready else 0 for player in self.challengers()}

    def started_over(self) -> "ExperimentState":
        """The experiment, whose next look begins a new batch."""
        players = tuple(replace(player, tally=replace(player.tally, counted=None)) for player in self.players)
        return self if players == self.players else replace(self, players=players)

    def with_player(self, index: int, player: Player) -> "ExperimentState":
        return replace(self, players=(*self.players[:index], player, *self.players[index + 1 :]))


def current_experiment(spec: ModelDeploymentSpec, trial: ExperimentState | ExperimentStatus) -> Experiment | None:
    """spec.experiment, if it is the one that this state carries out; None where it was changed or removed."""
    wanted = spec.experiment
    return wanted if wanted and id_of(wanted) == trial.id else None


def id_of(experiment: Experiment) -> str:
    """First 8 hex digits of the SHA-256 over the canonical JSON of the experiment."""
    text = {name: value for name, value in experiment.to_kube().items() if value != []}
    body = json.dumps(text, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()[:8]


def load_experiment(status: ExperimentStatus | None) -> ExperimentState | None:
    """The persisted experiment; damaged numbers start over."""
    if status is None:
        return None
    size = len(status.arms)
    return ExperimentState(
        status.id,
        status.phase,
        tuple(_player(arm, size) for arm in status.arms),
        status.started_at,
        status.finished_at,
        status.winner,
        status.promoted_over,
        status.approved_by,
        status.message or "",
    )


def save_experiment(trial: ExperimentState | None, experiment: Experiment | None) -> ExperimentStatus | None:
    if trial is None:
        return None
    metric, alpha = (experiment.metric, experiment.alpha) if experiment else (ExperimentMetric(), 0.05)
    return ExperimentStatus(
        id=trial.id,
        phase=trial.phase,
        started_at=trial.started_at,
        finished_at=trial.finished_at,
        arms=[_arm(player, metric, alpha / max(1, len(trial.players))) for player in trial.players],
        winner=trial.winner,
        promoted_over=trial.promoted_over,
        approved_by=trial.approved_by,
        message=trial.message[:1024] or None,
    )


def check_of(metric: ExperimentMetric) -> MetricThreshold:
    """The check of a rollout that measures the same: how numbers are read is written once."""
    return MetricThreshold.model_construct(
        name="spec.experiment.metric",
        type=metric.type,
        test="sequential",
        return_range=metric.return_range,
        min_episodes=1,
    )


def in_unit(metric: ExperimentMetric, value: float) -> float:
    """A mean of outcomes in 0..1 in the metric's own unit."""
    check = check_of(metric)
    return type_of(check).in_unit(check, value)


def standings(spec: Experiment, trial: ExperimentState) -> str:
    """`success rate: b 0.71 [0.66, 0.75] over 400 episodes, …`: every arm with its confidence sequence, best first."""
    order = sorted(trial.players, key=lambda player: -player.tally.judged.mean)
    text = ", ".join(_figures(spec, player, spec.alpha / len(trial.players)) for player in order)
    return f"{type_of(check_of(spec.metric)).noun}: {text}"


def _figures(spec: Experiment, player: Player, alpha: float) -> str:
    judged = player.tally.judged
    if player.standing == "withdrawn" or judged.n <= 0.0:
        return f"{player.name} {'withdrawn' if player.standing == 'withdrawn' else 'not compared yet'}"
    low, high = sorted(in_unit(spec.metric, end) for end in e_values.mean_interval(judged, alpha))
    mean = number(in_unit(spec.metric, judged.mean))
    beaten = ", beaten" if player.standing == "beaten" else ""
    return f"{player.name} {mean} [{number(low)}, {number(high)}] over {int(judged.n)} episodes{beaten}"


def _arm(player: Player, metric: ExperimentMetric, alpha: float) -> ExperimentArmStatus:
    judged, played = player.tally.judged, player.tally.judged.n > 0.0
    ends = sorted(in_unit(metric, end) for end in e_values.mean_interval(judged, alpha))
    return ExperimentArmStatus(
        name=player.name,
        revision=player.model.revision,
        uri=player.model.uri,
        sha256=player.model.sha256,
        weight=player.weight,
        standing=player.standing,
        ready=player.ready,
        since=player.since or None,
        message=player.message[:1024] or None,
        episodes=int(judged.n),
        mean=round(in_unit(metric, judged.mean), 4) if played else None,
        low=round(ends[0], 4) if played else None,
        high=round(ends[1], 4) if played else None,
        chance_better=round(canary_against_stable.chance(player.tally.better[0]), 6)
        if player.name != STABLE and played
        else None,
        log_better=list(player.tally.better),
        judged=[judged.n, judged.total],
        counted=[player.tally.counted.n, player.tally.counted.total] if player.tally.counted else None,
    )


def _player(arm: ExperimentArmStatus, size: int) -> Player:
    model = Model(arm.revision, arm.uri, arm.sha256)
    judged, counted = _counts(arm.judged), _counts(arm.counted)
    tally = several_arms.fresh(size)[0]
    if judged and arm.log_better is not None and len(arm.log_better) == size:
        tally = several_arms.ArmRecord(judged, counted, tuple(arm.log_better))
    since, message = arm.since or "", arm.message or ""
    return Player(arm.name, model, arm.weight, arm.standing, arm.ready, since, message, tally)


def _counts(numbers: list[float] | None) -> e_values.Counts | None:
    if not numbers or len(numbers) != 2:
        return None
    counts = e_values.Counts(*numbers)
    return counts if counts.possible else None
