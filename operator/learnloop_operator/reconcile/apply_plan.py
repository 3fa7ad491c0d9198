"""Applies a plan: children, calls, status, events, and announcements to the data plane, at least once and in order."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from learnloop_operator.core import artifacts, conditions, counted_transitions
from learnloop_operator.core.plan import (
    Announcement,
    BaseSnapshot,
    Call,
    KubeObject,
    Notice,
    ObjectRef,
    Plan,
    controller_uid,
)
from learnloop_operator.data_plane_client import DataPlane, DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.kube import cached_reads, errors, fenced_client, kubernetes_events
from learnloop_operator.kube.kinds import (
    LEARNING_AGENT,
    MODEL_DEPLOYMENT,
    REWARD_POLICY,
    SECRET,
    TRAINING_JOB,
    ResourceKind,
    kind_of,
    ref_of,
)
from learnloop_operator.operator_metrics import LoopMetrics
from learnloop_operator.rollout.reasons import REGISTRATION_FAILED

if TYPE_CHECKING:
    from learnloop_operator.reconcile.tracing import Tracer

log = logging.getLogger(__name__)


FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
MAX_WAITING = 10_000


class Announcer:
    """Delivers in order, at least once, each identity of a path once while this process lives.

    A process that dies forgets what was waiting; the next one tells what is so then, and the data plane knows
    whether that is news.
    """

    def __init__(self, data_plane: DataPlane) -> None:
        self._data_plane = data_plane
        self._announced: dict[tuple[str, str], str] = {}
        self._waiting: deque[tuple[str, Call]] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()

    def say(self, namespace: str, news: Announcement) -> None:
        """Puts it in the queue unless it was the last thing said at this path."""
        key = (namespace, news.call.path)
        if self._announced.get(key) == news.identity:
            return
        if len(self._announced) >= MAX_WAITING:
            self._announced.clear()  # saying it again does no harm
        self._announced[key] = news.identity
        self._waiting.append((namespace, news.call))
        self._wake.set()

    async def run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                namespace, call = self._waiting[0]
                try:
                    await self._data_plane.call(namespace, call)
                except (DataPlaneUnavailable, errors.NotLeading) as error:
                    log.info("%s of %s is sent later: %s", call.path, namespace, error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                    continue
                except DataPlaneRefused as error:
                    log.warning("%s of %s cannot be sent: %s", call.path, namespace, error)
                pause = FIRST_PAUSE
                if self._waiting and self._waiting[0][1] is call:
                    self._waiting.popleft()


@dataclass(frozen=True, slots=True)
class Applier:
    """Turns plans into writes; what is already so costs none."""

    kube: fenced_client.KubeClient
    data_plane: DataPlane
    recorder: kubernetes_events.EventRecorder
    reads: cached_reads.Reader | None = None
    """Finds children that the snapshot does not hold; None: always live."""
    announcer: Announcer | None = None
    """Sends news to the data plane; None: not sent."""
    metrics: LoopMetrics | None = None
    """Counts what is new; None: not counted."""
    tracer: "Tracer | None" = None
    """Records decisions as spans; None: not traced."""

    async def apply(self, kind: ResourceKind, snapshot: BaseSnapshot, plan: Plan) -> None:
        """Carry out the plan.

        When a step fails, the steps after it are left out; when it can never succeed the object's status says so.

        Raises:
            Conflict: the snapshot is stale.
            KubeError, DataPlaneUnavailable, DataPlaneRefused: the pass failed and is to be repeated.
        """
        manager = field_manager(kind)
        if plan.status_first:
            snapshot = await self._record(kind, snapshot, plan, manager)
        try:
            await self._children(snapshot, plan, manager)
            for call in plan.calls:
                await self.data_plane.call(snapshot.namespace, call)
        except (errors.KubeError, DataPlaneRefused, DataPlaneUnavailable) as error:
            await self.blame(kind, snapshot, error)
            raise
        if not plan.status_first:
            await self._record(kind, snapshot, plan, manager)
        await self._outside(snapshot, plan, manager)
        if self.metrics is not None:
            agent = counted_transitions.agent_of(snapshot.object, plan.status)
            self.metrics.stands(kind.kind, snapshot.namespace, snapshot.name, plan, agent)
        if self.announcer is not None:
            for text in plan.announcements:
                self.announcer.say(snapshot.namespace, text)

    async def _record(self, kind: ResourceKind, before: BaseSnapshot, plan: Plan, manager: str) -> BaseSnapshot:
        """Write the status, then tell of it; returns the snapshot with the object as it is now."""
        snapshot = replace(before, object=await self._status(kind, before, plan.status, manager))
        if self.metrics is not None:
            self.metrics.count(counted_transitions.happenings(kind.kind, before, plan))
        for notice in plan.events:
            log.info("%s %s/%s: %s: %s", kind.kind, snapshot.namespace, snapshot.name, notice.reason, notice.message)
            self.recorder.note(snapshot.object, notice)
        if self.tracer is not None:
            self.tracer.decided(kind.kind, before.object, plan.status, plan.events, before.now, datetime.now(UTC))
        return snapshot

    async def _children(self, snapshot: BaseSnapshot, plan: Plan, manager: str) -> None:
        live = {ref_of(child): child for child in snapshot.children}
        present = [await self._present(manifest, live) for manifest in plan.apply]  # all before the first write
        for manifest, child in zip(plan.apply, present, strict=True):
            if manifest["kind"] == SECRET.kind:
                # Secrets are made once and never changed: a credential must not rotate because of a race.
                with contextlib.suppress(errors.Conflict):
                    await self.kube.create(manifest)
            else:
                await self.kube.apply(manifest, manager, live=child)
        for ref in plan.delete:
            if child := await self._find(ref, live):
                await self.kube.delete(ref, live=child)

    async def _outside(self, snapshot: BaseSnapshot, plan: Plan, manager: str) -> None:
        """Tells routers of others. A router that cannot be told delays no rollout: an event says so."""
        live = {ref_of(child): child for child in snapshot.children}
        for manifest in plan.outside:
            try:
                await self.kube.apply(manifest, manager, live=await self._present(manifest, live))
            except errors.KubeError as error:
                message = f"{manifest['kind']} {manifest['metadata']['name']}: {error}"[:1000]
                log.warning("%s/%s: %s", snapshot.namespace, snapshot.name, message)
                self.recorder.note(snapshot.object, Notice("Warning", REGISTRATION_FAILED, message))

    async def _present(self, manifest: KubeObject, live: Mapping[ObjectRef, KubeObject]) -> KubeObject | None:
        """The child as it is now.

        Raises:
            NotOurs, Conflict: it belongs to somebody else.
        """
        ref = ref_of(manifest)
        if ref.kind == SECRET.kind:
            return None  # the operator may not read Secrets
        present = await self._find(ref, live)
        if present is not None and controller_uid(present) != controller_uid(manifest):
            # No watch follows every cached kind: the child of an owner that was deleted may be long gone.
            present = await self.kube.relearn(kind_of(ref), ref.namespace, ref.name)
        if present is not None:
            check_ownership(manifest, present)
        return present

    async def _find(self, ref: ObjectRef, live: Mapping[ObjectRef, KubeObject]) -> KubeObject | None:
        """The object. One that neither snapshot nor cache has is read live: creating it has no precondition."""
        if result := live.get(ref):
            return result
        kind = kind_of(ref)
        result = await self.reads.find(kind, ref.namespace, ref.name) if self.reads else None
        return result or await self.kube.find(kind, ref.namespace, ref.name)

    async def _status(self, kind: ResourceKind, snapshot: BaseSnapshot, status: KubeObject, manager: str) -> KubeObject:
        live = {"apiVersion": kind.api_version, "kind": kind.kind, **snapshot.object}
        return await self.kube.apply_status({**status, "brief": conditions.brief(status)}, manager, live=live)

    async def blame(self, kind: ResourceKind, snapshot: BaseSnapshot, error: Exception) -> None:
        """Say in the object's status what can never succeed, or not until somebody gives us room or a right, or mends
        a webhook.

        Errors that pass by themselves are left to the retry.
        """
        held = isinstance(error, errors.Forbidden | errors.WebhookUnavailable)
        if isinstance(error, errors.KubeError) and not error.permanent and not held:
            return
        try:
            await self._status(kind, snapshot, readable(kind, blamed(snapshot, error)), field_manager(kind))
        except errors.KubeError as second:
            log.warning("%s %s/%s: status not written: %s", kind.kind, snapshot.namespace, snapshot.name, second)


def field_manager(kind: ResourceKind) -> str:
    """One field manager per controller, so that a conflict names the culprit."""
    return f"learnloop-{kind.kind.lower()}"


def blamed(snapshot: BaseSnapshot, error: Exception) -> dict[str, Any]:
    """The live status with the failure in Ready, Reconciling and Stalled; every other condition stays.

    A data plane that does not answer takes no object's readiness away; neither does a quota or a missing right
    (Forbidden) or a webhook that is down. They hold the object where it is, and it goes on by itself.
    """
    before = snapshot.status.get("conditions") or []
    holds = isinstance(error, DataPlaneUnavailable | errors.Forbidden | errors.WebhookUnavailable)
    was = conditions.find(snapshot.status, "Ready").get("status")
    reason = "Refused" if isinstance(error, errors.Invalid | DataPlaneRefused) else type(error).__name__
    ready = {conditions.TRUE: True, conditions.FALSE: False}.get(str(was)) if holds else False
    failure = conditions.ready_triplet(
        snapshot, reason, str(error)[:1024], ready=ready, progressing=holds, stalled=not holds
    )
    others = {item["type"] for item in failure}
    retained = [item for item in before if item["type"] not in others]
    merged = conditions.merge(before, [*failure, *retained], snapshot.time)
    return {**snapshot.status, "conditions": merged, "observedGeneration": snapshot.generation}


def readable(kind: ResourceKind, status: dict[str, Any]) -> dict[str, Any]:
    """Status for `kubectl get`: a phase, and a ModelDeployment's sentence in `verdict` too."""
    verdict = {"verdict": conditions.find(status, "Ready")["message"][:1024]} if kind is MODEL_DEPLOYMENT else {}
    return {"phase": "Pending", **status, **verdict}


def check_ownership(manifest: KubeObject, live: KubeObject) -> None:
    """Never take over what belongs to somebody else.

    Raises:
        NotOurs: the object has another controller, or none.
        Conflict: it belongs to an earlier incarnation of the same owner, and is about to be collected.
    """
    wanted = controller_uid(manifest)
    if wanted is None or controller_uid(live) == wanted:
        return
    owner = manifest["metadata"]["ownerReferences"][0]
    address = f"{live['kind']} {live['metadata']['namespace']}/{live['metadata']['name']}"
    references = live["metadata"].get("ownerReferences") or ()
    if any(item["kind"] == owner["kind"] and item["name"] == owner["name"] for item in references):
        raise errors.Conflict(
            f"{address} still belongs to the deleted {owner['kind']} {owner['name']}: waiting for its end"
        )
    raise errors.NotOurs(
        f"{address} exists and is not controlled by {owner['kind']} {owner['name']}: rename or delete one of the two"
    )


FIRST_SECONDS, EVERY_SECONDS = 60.0, 3600.0


class ArtifactUsageReporter:
    """Asks the API server itself, not a cache: an object that is not seen would lose its model."""

    def __init__(
        self, kube: fenced_client.KubeClient, data_plane: DataPlane, namespaces: Callable[[], Iterable[str]]
    ) -> None:
        """`namespaces`: those this operator looks after, empty while another one leads."""
        self._kube, self._data_plane, self._namespaces = kube, data_plane, namespaces

    async def run(self, first: float = FIRST_SECONDS, every: float = EVERY_SECONDS) -> None:
        await asyncio.sleep(first)
        while True:
            for namespace in sorted(self._namespaces()):
                try:
                    await self.tell(namespace)
                except (DataPlaneUnavailable, DataPlaneRefused, errors.KubeError, ValueError) as error:
                    log.info("old artifacts of %s stay for now: %s", namespace, error)
            await asyncio.sleep(every)

    async def tell(self, namespace: str) -> None:
        """About one namespace. Raises what keeps it from being told; then nothing is deleted."""
        models, agents, policies, jobs = [
            await self._kube.list(kind, namespace)
            for kind in (MODEL_DEPLOYMENT, LEARNING_AGENT, REWARD_POLICY, TRAINING_JOB)
        ]
        await self._data_plane.call(namespace, artifacts.in_use([*models, *agents, *policies], jobs))
