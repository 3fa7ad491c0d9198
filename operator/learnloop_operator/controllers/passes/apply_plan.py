"""Apply a plan, in the order that protects users: apply, delete, calls, status, events."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from learnloop_operator.adapters.audit_log import AuditLog
from learnloop_operator.adapters.data_plane import DataPlane, DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.adapters.kube.client import KubeClient
from learnloop_operator.adapters.kube.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotOurs,
    Stale,
    WebhookUnavailable,
)
from learnloop_operator.adapters.kube.event_recorder import EventRecorder
from learnloop_operator.adapters.kube.kinds import MODEL_DEPLOYMENT, SECRET, ResourceKind, kind_of, ref_of
from learnloop_operator.adapters.kube.live_or_cached_reads import Reader
from learnloop_operator.adapters.leadership.watch_liveness import WatchLiveness
from learnloop_operator.adapters.loop_metrics import LoopMetrics
from learnloop_operator.adapters.tracer import Tracer
from learnloop_operator.controllers.background.announcer import Announcer
from learnloop_operator.controllers.passes.made_secrets import MadeSecrets
from learnloop_operator.controllers.unwritten_statuses import UnwrittenStatuses
from learnloop_operator.core import conditions
from learnloop_operator.core.counted_transitions import Happening, agent_of, happenings
from learnloop_operator.core.ownership import controller_uid
from learnloop_operator.core.plan import Manifest, Notice, ObjectRef, Plan
from learnloop_operator.core.rollout.reasons import REGISTRATION_FAILED
from learnloop_operator.core.snapshot import BaseSnapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Applier:
    """Turns plans into writes; what is already so costs none."""

    kube: KubeClient
    data_plane: DataPlane
    recorder: EventRecorder
    echo: WatchLiveness
    audit: AuditLog
    reads: Reader | None = None
    """Where children that the snapshot does not hold are looked for; None: always live."""
    drafts: UnwrittenStatuses = field(default_factory=UnwrittenStatuses)
    """Statuses that can wait."""
    announcer: Announcer | None = None
    """Who tells the data plane news; None: nobody does."""
    secrets: MadeSecrets = field(default_factory=MadeSecrets)
    metrics: LoopMetrics | None = None
    """What counts what is new; None: nobody does."""
    tracer: Tracer | None = None
    """Who sends the steps that have ended; None: nobody does."""

    async def apply(self, kind: ResourceKind, snapshot: BaseSnapshot, plan: Plan, *, cached: bool = False) -> None:
        """Everything the plan wants.

        When a step fails, the steps after it are left out; when it can never succeed the object's status says so.
        A plan made on `cached` reads may only add: children that a live read confirms missing, and the status of
        exactly the version it was decided on.

        Raises:
            Stale: a cached plan wants more than that; nothing was written.
            KubeError, DataPlaneUnavailable, DataPlaneRefused: the pass failed and is to be repeated.
        """
        manager, news = field_manager(kind), happenings(kind.kind, snapshot, plan)
        before = snapshot.object
        if plan.status_first:
            if cached:
                raise Stale("what is permitted before it is done takes a live look")
            snapshot = replace(snapshot, object=await self._status(kind, snapshot, plan.status, manager))
            self._tell(kind, snapshot, plan, news)
            self._trace(kind, before, snapshot, plan)
        try:
            await self._children(snapshot, plan, manager, cached)
            for call in plan.calls:
                await self.data_plane.call(snapshot.namespace, call)
        except (KubeError, DataPlaneRefused, DataPlaneUnavailable) as error:
            if not cached:
                await self.blame(kind, snapshot, error)
            raise
        if plan.status_can_wait:
            self.drafts.keep(snapshot.object, plan.status, snapshot.now)
            await self._outside(snapshot, plan, manager, cached)
            return
        self.drafts.drop(snapshot.object)
        if not plan.status_first:
            await self._status(kind, snapshot, plan.status, manager)
            self._tell(kind, snapshot, plan, news)
            self._trace(kind, before, snapshot, plan)
        await self._outside(snapshot, plan, manager, cached)
        if self.metrics is not None:
            agent = agent_of(snapshot.object, plan.status)
            self.metrics.stands(kind.kind, snapshot.namespace, snapshot.name, plan, agent)
        if self.announcer is not None:
            for said in plan.announcements:
                self.announcer.say(snapshot.namespace, said)

    def _tell(self, kind: ResourceKind, snapshot: BaseSnapshot, plan: Plan, news: tuple[Happening, ...]) -> None:
        if self.metrics is not None:
            self.metrics.count(news)
        for entry in plan.audit:
            self.audit.record(entry)
        for notice in plan.events:
            log.info("%s %s/%s: %s: %s", kind.kind, snapshot.namespace, snapshot.name, notice.reason, notice.message)
            self.recorder.note(snapshot.object, notice)

    def _trace(self, kind: ResourceKind, before: Manifest, snapshot: BaseSnapshot, plan: Plan) -> None:
        if self.tracer is not None:
            self.tracer.saw(kind.kind, before, before.get("status") or {}, plan.status, snapshot.now)

    async def _children(self, snapshot: BaseSnapshot, plan: Plan, manager: str, cached: bool) -> None:
        live = {ref_of(child): child for child in snapshot.children}
        found: Sequence[Manifest | None]
        if cached:  # it answers at once: a task for each look would cost more than the look
            found = [await self._present(manifest, live, manager, cached) for manifest in plan.apply]
        else:
            found = await asyncio.gather(*(self._present(manifest, live, manager, cached) for manifest in plan.apply))
        if cached and plan.delete:
            raise Stale(f"deleting {plan.delete[0].name} takes a live look")
        for manifest, present in zip(plan.apply, found, strict=True):
            if manifest["kind"] == SECRET.kind:
                # Secrets are made once and never changed: a credential must not rotate because of a race.
                await self._create_once(manifest)
            elif present is None or not cached:  # a cached look has already found the present ones as they should be
                await self.kube.apply(manifest, manager, live=present)
        for ref in plan.delete:
            present = live.get(ref) or await self.kube.find(kind_of(ref), ref.namespace, ref.name)
            if present is not None:
                await self.kube.delete(ref, live=present)

    async def _outside(self, snapshot: BaseSnapshot, plan: Plan, manager: str, cached: bool) -> None:
        """Tells routers of others. A router that cannot be told holds no rollout up: it is said in an event.

        Raises:
            Stale: `cached`, and what they were told would have to be changed.
        """
        live = {ref_of(child): child for child in snapshot.children}
        for manifest in plan.outside:
            try:
                present = await self._present(manifest, live, manager, cached)
                if present is None or not cached:
                    await self.kube.apply(manifest, manager, live=present)
            except Stale:
                raise
            except KubeError as error:
                told = f"{manifest['kind']} {manifest['metadata']['name']}: {error}"[:1000]
                log.warning("%s/%s: %s", snapshot.namespace, snapshot.name, told)
                self.recorder.note(snapshot.object, Notice("Warning", REGISTRATION_FAILED, told))

    async def _present(
        self, manifest: Manifest, live: Mapping[ObjectRef, Manifest], manager: str, cached: bool
    ) -> Manifest | None:
        """The child as it is now.

        Raises:
            NotOurs, Conflict: it belongs to somebody else.
            Stale: `cached`, and it would have to be changed, or exists although the cache knows nothing of it.
        """
        ref = ref_of(manifest)
        if ref.kind == SECRET.kind:
            return None  # nobody may look: the operator reads no Secret
        kind, address = kind_of(ref), f"{ref.kind} {ref.namespace}/{ref.name}"
        present = live.get(ref) or await (self.reads or self.kube).find(kind, ref.namespace, ref.name)
        if present is not None:
            check_ownership(manifest, present)
        if not cached:
            return present
        if present is None and await self.kube.find(kind, ref.namespace, ref.name):
            raise Stale(f"{address} exists although the cache knows nothing of it")
        if present is not None and not self.kube.same(manifest, present, manager):
            raise Stale(f"changing {address} takes a live look")
        return present

    async def _create_once(self, manifest: Manifest) -> None:
        if self.secrets.lately(manifest):
            return
        with contextlib.suppress(Conflict):
            await self.kube.create(manifest)
        self.secrets.note(manifest)

    async def _status(self, kind: ResourceKind, snapshot: BaseSnapshot, status: Manifest, manager: str) -> Manifest:
        live = snapshot.object
        after = await self.kube.apply_status(kind, snapshot.namespace, snapshot.name, status, manager, live=live)
        version = after["metadata"]["resourceVersion"]
        if version != live["metadata"]["resourceVersion"]:
            self.echo.expect(kind.kind, snapshot.namespace, snapshot.name, version)
        return after

    def parted(self, kind: str, namespace: str, name: str) -> None:
        """The object is gone."""
        if self.tracer is not None:
            self.tracer.gone(kind, namespace, name, datetime.now(UTC))

    async def blame(self, kind: ResourceKind, snapshot: BaseSnapshot, error: Exception) -> None:
        """Say in the object's status what can never succeed, or not until somebody gives us room or a right, or mends
        a webhook.

        Errors that pass by themselves are left to the retry.
        """
        held = isinstance(error, Forbidden | WebhookUnavailable)
        if isinstance(error, KubeError) and not error.permanent and not held:
            return
        try:
            await self._status(kind, snapshot, told(kind, blamed(snapshot, error)), field_manager(kind))
        except KubeError as second:
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
    holds = isinstance(error, DataPlaneUnavailable | Forbidden | WebhookUnavailable)
    was = next((item["status"] for item in before if item["type"] == "Ready"), conditions.UNKNOWN)
    failure = conditions.ready_triplet(
        ready={conditions.TRUE: True, conditions.FALSE: False}.get(was) if holds else False,
        progressing=holds,
        stalled=not holds,
        reason="Refused" if isinstance(error, Invalid | DataPlaneRefused) else type(error).__name__,
        message=str(error)[:1024],
        generation=snapshot.generation,
    )
    theirs = {item["type"] for item in failure}
    kept = [item for item in before if item["type"] not in theirs]
    merged = conditions.merge(before, [*failure, *kept], snapshot.time)
    return {**snapshot.status, "conditions": merged, "observedGeneration": snapshot.generation}


def told(kind: ResourceKind, status: dict[str, Any]) -> dict[str, Any]:
    """What `kubectl get` shows of it: a phase, and a ModelDeployment's sentence in `verdict` too."""
    shown = {"phase": "Pending", **status}
    if kind is not MODEL_DEPLOYMENT:
        return shown
    ready = next(item for item in status["conditions"] if item["type"] == "Ready")
    return {**shown, "verdict": ready["message"][:1024]}


def check_ownership(manifest: Manifest, live: Manifest) -> None:
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
        raise Conflict(f"{address} still belongs to the deleted {owner['kind']} {owner['name']}: waiting for its end")
    raise NotOurs(
        f"{address} exists and is not controlled by {owner['kind']} {owner['name']}: rename or delete one of the two"
    )
