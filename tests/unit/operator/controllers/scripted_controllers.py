"""A runtime over controllers whose passes go as told."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from learnloop_operator.core.plan import BaseSnapshot, Call, Plan
from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT, TRAINING_JOB
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.reconcile.work_queue import ObjectKey, Runtime

NOW = datetime(2026, 3, 1, tzinfo=UTC)
A, B = ObjectKey("TrainingJob", "ns", "a"), ObjectKey("TrainingJob", "ns", "b")
TRIED = ObjectKey(MODEL_DEPLOYMENT.kind, "ns", "tried")


@dataclass
class Scripted:
    """A controller whose passes go wrong as told."""

    errors: dict[str, Exception]
    kind: Any = TRAINING_JOB
    names: list[str] = field(default_factory=list)

    async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
        self.names.append(name)
        if name in self.errors:
            raise self.errors[name]
        return BaseSnapshot(now=NOW, object={"metadata": {"name": name, "namespace": namespace}})

    def decide(self, snapshot: BaseSnapshot) -> Plan:
        return Plan(status={})

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        return ()


class Applied:
    async def apply(self, *_, **__) -> None:
        return

    def parted(self, *_) -> None:
        return


class Leading:
    acquired = asyncio.Event()

    def guard(self) -> None:
        return


def runtime(*controllers: Scripted, reads=None) -> Runtime:
    made = Runtime(
        controllers, Applied(), None, Leading(), OperatorMetrics(), workers=2, resync_seconds=60, reads=reads
    )
    return made
