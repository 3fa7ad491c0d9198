"""A rollout of the past, decided again: recorded evidence through the very same `decide`, with another specification.

The replay judges only episodes that were really played. Where the record gave an arm fewer than the specification would
have, the replay waits longer than the rollout would have. The other arms of an experiment are replayed where they
played next to the canary then; one that did not has no past, and the experiment is replayed without it. Shadow steps
are replayed where the canary got copies then, and left out where it got none.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from learnloop_api.kinds.model_deployment import ArmStatus, ModelDeploymentSpec, ModelDeploymentStatus, Routing
from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.names import ANNOTATION_APPROVE, API_VERSION
from learnloop_api.wire.routing import RoutingTable
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.children.routing_table import read
from learnloop_operator.rollout.decide import current, decide
from learnloop_operator.rollout.evidence import Evidence, Window
from learnloop_operator.rollout.judging.arms import shadow_window, windows
from learnloop_operator.rollout.judging.experiment_arms import checks
from learnloop_operator.rollout.model import rollout_state as blocked
from learnloop_operator.rollout.model.snapshot import (
    ArmWorld,
    Defaults,
    Desired,
    Model,
    RoutingWorld,
    Snapshot,
    model_here,
)

RACED = (reasons.EXPERIMENT_WON, reasons.EXPERIMENT_OVER, reasons.ARM_WITHDRAWN, reasons.SUPERSEDED)
PASSES = 50
"""More than any look takes to come to rest: two for each of at most 20 steps."""


@dataclass(frozen=True, slots=True)
class Look:
    """The operator's status at one moment. `weight`: percent of new episodes for the canary."""

    at: datetime
    phase: str
    weight: int
    reason: str
    sentence: str
    raced: tuple[str, ...] = ()
    """What came of an experiment on the way to it."""

    def differs(self, other: "Look | None") -> bool:
        """Whether a reader learns something new."""
        return (
            bool(self.raced)
            or other is None
            or (self.phase, self.weight, self.reason) != (other.phase, other.weight, other.reason)
        )


class Replay:
    """One rollout from `stable` to `canary` that began at `began`. The replay takes pods to be ready, and people to
    approve what they are asked. Where no arm has won it does not guess which one they would choose: there it ends.

    `recorded`: revisions of the other arms that played then. `copied`: the canary was in shadow then.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        spec: ModelDeploymentSpec,
        canary: Model,
        stable: Model,
        began: datetime,
        recorded: Collection[str] = (),
        copied: bool = False,
    ) -> None:
        self._metadata = {"namespace": namespace, "name": name, "uid": "replay", "generation": 1}
        self._spec, self._canary, self._stable = _replayable(spec, recorded, copied), canary, stable
        self._chosen_by_people = False
        serving = ArmStatus(revision=stable.revision, uri=stable.uri, sha256=stable.sha256, ready_replicas=1)
        self._status = ModelDeploymentStatus(
            stable=serving.model_copy(update={"since": stamp(began)}), rollout_started_at=stamp(began)
        )
        self._began = began
        self._table: RoutingTable | None = None
        self._annotations: dict[str, str] = {}
        pods = max(1, spec.serving.replicas, spec.serving.canary_replicas)
        self._arms = {
            model.revision: ArmWorld(pods, pods, pod=spec.serving.pod, model=model)
            for model in (canary, stable, *guests_of(self._spec).values())
        }

    @property
    def metrics(self) -> list[MetricThreshold]:
        """Metrics that the next look needs."""
        state = current(self._snapshot(self._began, Evidence()))
        return [*self._spec.analysis.metrics, *checks(self._spec, state.experiment)]

    def asked(self, now: datetime) -> tuple[Window, ...]:
        """Windows that the next look needs."""
        snapshot = self._snapshot(now, Evidence())
        return windows(snapshot, current(snapshot))

    def shadowed(self, now: datetime) -> Window | None:
        """Window of copies that the next look needs instead, in a shadow step."""
        snapshot = self._snapshot(now, Evidence())
        return shadow_window(snapshot, current(snapshot))

    def look(self, now: datetime, evidence: Evidence) -> Look:
        """Decide until nothing more follows at this moment."""
        raced: list[str] = []
        for _ in range(PASSES):
            plan = decide(self._snapshot(now, evidence))
            self._status = ModelDeploymentStatus.model_validate(plan.status)
            tables = (read(dict(item)).table for item in plan.apply if item["kind"] == "ConfigMap")
            self._table = next(tables, self._table)
            raced += [notice.message for notice in plan.events if notice.reason in RACED]
            if plan.requeue_after != 0.0:
                break
        counted = replace(self._seen(now), raced=tuple(raced))
        if counted.reason != reasons.WAITING_FOR_APPROVAL:
            return counted
        winner = self._waits_for()
        if winner is None:
            self._chosen_by_people = True
            return replace(counted, sentence=f"{counted.sentence} (a person's choice is not on record)")
        self._annotations[ANNOTATION_APPROVE] = f"{winner}/{(self._status.step or 0) + 1}"
        return replace(counted, sentence=f"{counted.sentence} (the replay approves)")

    def _waits_for(self) -> str | None:
        """The revision that a person is asked about; None where a person has to choose among several."""
        result = self._status.experiment
        if result is None or result.step != self._status.step or result.phase == "Finished":
            return self._canary.revision if self._status.canary is None else self._status.canary.revision
        return next((arm.revision for arm in result.arms if arm.name == result.winner), None)

    @property
    def over(self) -> bool:
        """Rolled back, or promoted and no longer guarded, or left to a person's choice."""
        stable, pinned = self._status.stable, self._status.blocked_revision
        through = stable is not None and stable.revision != self._stable.revision and self._status.previous is None
        return through or pinned is not None or self._chosen_by_people

    def _seen(self, now: datetime) -> Look:
        status = self._status
        arms = self._table.arms if self._table else []
        weight = sum(arm.weight for arm in arms if arm.revision == self._on_trial())
        ready = next(item for item in status.conditions if item.type == "Ready")
        return Look(now, status.phase or "", weight, ready.reason, status.verdict or "")

    def _on_trial(self) -> str:
        """The canary, the winner of an experiment in its place, or what was promoted."""
        status = self._status
        if status.canary is not None:
            return status.canary.revision
        promoted = status.stable if status.stable and status.stable.revision != self._stable.revision else None
        return promoted.revision if promoted else self._canary.revision

    def _snapshot(self, now: datetime, evidence: Evidence) -> Snapshot:
        body = {
            "apiVersion": API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {**self._metadata, "annotations": dict(self._annotations)},
            "status": self._status.to_kube(),
        }
        return Snapshot(
            now=now,
            object=body,
            spec=self._spec,
            before=self._status,
            desired=Desired(self._canary),
            arms=self._arms,
            routing=RoutingWorld(
                self._table, next(reversed(blocked.load_pins(self._status)), None) if self._table else None
            ),
            evidence=evidence,
            defaults=Defaults("", ""),
        )


def guests_of(spec: ModelDeploymentSpec) -> dict[str, Model]:
    """The arms that experiments among the steps would bring along, by name."""
    wanted = (arm for step in spec.rollout.steps if step.experiment for arm in step.experiment.arms)
    return {arm.name: model_here(spec, arm.uri, arm.sha256) for arm in wanted}


def _replayable(spec: ModelDeploymentSpec, recorded: Collection[str], copied: bool) -> ModelDeploymentSpec:
    """The specification without what would stop the replay: a suspension, and arms and copies that have no past."""
    record = {name for name, model in guests_of(spec).items() if model.revision in recorded}
    steps = []
    for step in spec.rollout.steps:
        if step.shadow is not None and not copied:
            continue
        if step.experiment is not None:
            arms = [arm for arm in step.experiment.arms if arm.name in record]
            step = step.model_copy(update={"experiment": step.experiment.model_copy(update={"arms": arms})})
        steps.append(step)
    rollout = spec.rollout.model_copy(update={"steps": steps})
    # Evidence is the same in both modes; in service mode the table says who would have got how much.
    return spec.model_copy(update={"suspend": False, "rollout": rollout, "routing": Routing()})
