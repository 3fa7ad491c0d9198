"""A rollout of the past, decided again: recorded evidence through the very same `decide`, with another specification.

Only episodes that were really played can be judged: where the record gave the canary fewer than the specification would
have, the replay waits longer than the rollout would have.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from learnloop_api.kinds.model_deployment import ArmStatus, ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.names import ANNOTATION_APPROVE, API_VERSION
from learnloop_api.wire.routing import RoutingTable
from learnloop_operator.core.rollout import reasons
from learnloop_operator.core.rollout.decide import current, decide
from learnloop_operator.core.rollout.evidence import Evidence
from learnloop_operator.core.rollout.table import read
from learnloop_operator.core.rollout.windows import Window, windows
from learnloop_operator.core.rollout.world import ArmWorld, Defaults, Desired, Model, RoutingWorld, Snapshot
from learnloop_operator.core.times import stamp

PASSES = 50
"""More than any look takes to come to rest: two for each of at most 20 steps."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the operator would have said at one moment. `weight`: percent of new episodes for the canary."""

    at: datetime
    phase: str
    weight: int
    reason: str
    sentence: str

    def differs(self, other: "Look | None") -> bool:
        """Whether a reader learns something new."""
        return other is None or (self.phase, self.weight, self.reason) != (other.phase, other.weight, other.reason)


class Replay:
    """One rollout from `stable` to `canary` that began at `began`. Pods are taken to be ready, people to approve, and
    a step with an experiment is one of its weight alone: its other arms have no past."""

    def __init__(
        self, namespace: str, name: str, spec: ModelDeploymentSpec, canary: Model, stable: Model, began: datetime
    ) -> None:
        self._metadata = {"namespace": namespace, "name": name, "uid": "replay", "generation": 1}
        self._spec, self._canary = _replayable(spec), canary
        serving = ArmStatus(revision=stable.revision, uri=stable.uri, sha256=stable.sha256, ready_replicas=1)
        self._status = ModelDeploymentStatus(
            stable=serving.model_copy(update={"since": stamp(began)}), rollout_started_at=stamp(began)
        )
        self._table: RoutingTable | None = None
        self._annotations: dict[str, str] = {}
        pods = max(1, spec.serving.replicas, spec.serving.canary_replicas)
        self._arms = {
            model.revision: ArmWorld(pods, pods, pod=spec.serving.pod, model=model) for model in (canary, stable)
        }

    def asked(self, now: datetime) -> tuple[Window, ...]:
        """What the evidence of the next look has to cover."""
        snapshot = self._snapshot(now, Evidence())
        return windows(snapshot, current(snapshot))

    def look(self, now: datetime, evidence: Evidence) -> Look:
        """Decide until nothing more follows at this moment."""
        for _ in range(PASSES):
            plan = decide(self._snapshot(now, evidence))
            self._status = ModelDeploymentStatus.model_validate(plan.status)
            tables = (read(dict(item)).table for item in plan.apply if item["kind"] == "ConfigMap")
            self._table = next(tables, self._table)
            if plan.requeue_after != 0.0:
                break
        seen = self._seen(now)
        if seen.reason == reasons.WAITING_FOR_APPROVAL:
            self._annotations[ANNOTATION_APPROVE] = f"{self._canary.revision}/{(self._status.step or 0) + 1}"
            return replace(seen, sentence=f"{seen.sentence} (the replay approves)")
        return seen

    @property
    def over(self) -> bool:
        """Taken back, or promoted and no longer guarded."""
        stable, pinned = self._status.stable, self._status.blocked_revision
        through = stable is not None and stable.revision == self._canary.revision and self._status.previous is None
        return through or pinned is not None

    def _seen(self, now: datetime) -> Look:
        status = self._status
        arms = self._table.arms if self._table else []
        weight = sum(arm.weight for arm in arms if arm.revision == self._canary.revision)
        ready = next(item for item in status.conditions if item.type == "Ready")
        return Look(now, status.phase or "", weight, ready.reason, status.verdict or "")

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
            routing=RoutingWorld(self._table, self._status.blocked_revision if self._table else None),
            evidence=evidence,
            defaults=Defaults("", ""),
        )


def _replayable(spec: ModelDeploymentSpec) -> ModelDeploymentSpec:
    steps = [step.model_copy(update={"experiment": None}) for step in spec.rollout.steps]
    rollout = spec.rollout.model_copy(update={"steps": steps})
    return spec.model_copy(update={"suspend": False, "rollout": rollout})
