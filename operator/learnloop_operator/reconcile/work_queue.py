"""The objects that need a pass, one queue in which namespaces take turns, and what all controllers share."""

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from learnloop_common.cluster_clock import ClusterClock
from learnloop_common.telemetry import about, tell
from learnloop_operator.core.counted_transitions import of_object
from learnloop_operator.core.plan import BaseSnapshot, Call, Plan
from learnloop_operator.data_plane_client import DataPlane, DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.kube import cached_reads, errors, leader_lease
from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT, ResourceKind
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.reconcile import apply_plan, fast_lane_reader, trust_bundles
from learnloop_operator.rollout.evidence import EvidenceSource
from learnloop_operator.settings import Settings

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


async def answer(question: Awaitable[T]) -> tuple[T | None, str]:
    """The data plane's answer, or the reason why there is none: a pass holds, and never fails for it."""
    try:
        return await question, ""
    except DataPlaneUnavailable as error:
        return None, str(error)


def read_spec(model: type[M], live: Mapping[str, Any]) -> M:
    """The spec of a live object.

    Raises:
        InvalidSpec: names the field, and goes into the object's status.
    """
    return _read(model, live, "spec")


def read_status(model: type[M], live: Mapping[str, Any]) -> M:
    """The status of a live object. What cannot be read is never taken for an empty one: that would forget a decision.

    Raises:
        InvalidSpec: names the field.
    """
    return _read(model, live, "status")


def _read(model: type[M], live: Mapping[str, Any], part: str) -> M:
    try:
        return model.model_validate(live.get(part) or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join([part, *(str(step) for step in first["loc"])])
        raise errors.InvalidSpec(f"{where}: {first['msg']}", live) from None


def utc_now() -> datetime:
    """The wall clock; the only place where it is read for decisions."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Services:
    """Clients and settings shared by all controllers of one process."""

    kube: cached_reads.Reader
    data_plane: DataPlane
    evidence: EvidenceSource
    settings: Settings
    lane: fast_lane_reader.FastLaneReader
    clock: Callable[[], datetime] = field(default=utc_now)
    cluster_clock: ClusterClock = field(default_factory=ClusterClock)
    """The API server's, as its answers say."""

    def ahead(self) -> timedelta:
        return timedelta(seconds=self.cluster_clock.now() - time.time())


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """One custom resource: kind, namespace, name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


Line = Literal["first", "trials", "all"]
"""The keys that a worker takes: those that go first, those on trial, or any."""


class WorkQueue:
    """Level-based: marking is cheap and idempotent, and an object marked during its pass gets another one.

    Each key waits at most once and is in at most one pass at a time. Namespaces take turns, so a backlog in one delays
    a key of another by one pass. Within a namespace the oldest key goes first. Keys on trial wait in a line of their
    own as well, which workers of its own take from: a rollback that a pass decides waits for no backlog, and many
    trials of one namespace take no other worker from its neighbours.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[ObjectKey, None]] = OrderedDict()
        """Keys by namespace; the first namespace has the next turn, and none is empty."""
        self._first: OrderedDict[ObjectKey, None] = OrderedDict()
        """Those of them that go before all others."""
        self.on_trial: set[ObjectKey] = set()
        self._trials: OrderedDict[ObjectKey, None] = OrderedDict()
        """Waiting keys that are on trial."""
        self._busy: set[ObjectKey] = set()
        self._again: dict[ObjectKey, bool] = {}
        """Keys marked during their pass, and whether they go first."""
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + len(self._again)

    def mark(self, key: ObjectKey, *, first: bool = False) -> None:
        """The object needs a pass now; `first`: before all others, because users of an arm suffer meanwhile."""
        self._cancel(key)
        if key in self._busy:
            self._again[key] = first or self._again.get(key, False)
            return
        self._waiting.setdefault(key.namespace, OrderedDict()).setdefault(key)
        if first:
            self._first.setdefault(key)
        if key in self.on_trial:
            self._trials.setdefault(key)
        self._filled.set()

    def mark_later(self, key: ObjectKey, seconds: float) -> None:
        """Mark in `seconds`; an earlier mark or timer wins."""
        due = asyncio.get_running_loop().time() + max(0.0, seconds)
        if not self._waits(key) and (key not in self._timers or self._timers[key].when() > due):
            self._cancel(key)
            self._timers[key] = asyncio.get_running_loop().call_at(due, self.mark, key)

    async def take(self, line: Line = "all") -> ObjectKey:
        """Wait for a key of that line; it is busy until `done`. The pass sets its next timer."""
        lines: dict[Line, OrderedDict[Any, Any]] = {"first": self._first, "trials": self._trials, "all": self._waiting}
        while not lines[line]:
            self._filled.clear()
            await self._filled.wait()
        own = self._trials if line == "trials" else next(iter(self._waiting.values()))
        key = next(iter(self._first or own))
        self._first.pop(key, None)
        self._trials.pop(key, None)
        keys = self._waiting[key.namespace]
        del keys[key]
        if not keys:
            del self._waiting[key.namespace]
        elif line == "all":
            self._waiting.move_to_end(key.namespace)  # behind the other namespaces
        self._busy.add(key)
        self._cancel(key)
        return key

    def done(self, key: ObjectKey) -> None:
        self._busy.discard(key)
        if key in self._again:
            self.mark(key, first=self._again.pop(key))

    def close(self) -> None:
        for key in tuple(self._timers):
            self._cancel(key)

    def _waits(self, key: ObjectKey) -> bool:
        return key in self._again or key in self._waiting.get(key.namespace, ())

    def _cancel(self, key: ObjectKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()


log = logging.getLogger(__name__)

S = TypeVar("S", bound=BaseSnapshot)

PASS_SECONDS = 60.0
TRIAL_WORKERS = 4
FIRST_BACKOFF, LAST_BACKOFF = 0.25, 60.0


class Controller(Protocol[S]):
    """Gathering and decisions of one kind."""

    @property
    def kind(self) -> ResourceKind:
        """The custom resource this controller looks after; also names its field manager."""

    async def gather(self, namespace: str, name: str) -> S | None:
        """Read what the decision needs; None when the object is gone. A KubeError has the pass tried again later."""

    def decide(self, snapshot: S) -> Plan:
        """Pure: the same snapshot always gives the same plan."""

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """Calls to the data plane, best effort, when the object has disappeared."""


class Runtime:
    """Workers over the work queue. One broken object never stops the others."""

    def __init__(
        self,
        controllers: Iterable[Controller[Any]],
        applier: apply_plan.Applier,
        data_plane: DataPlane,
        leadership: leader_lease.Leadership,
        metrics: OperatorMetrics,
        *,
        workers: int,
        resync_seconds: float,
        reads: cached_reads.CachedReads | None = None,
        trust: trust_bundles.TrustBundles | None = None,
    ) -> None:
        self.controllers = {controller.kind.kind: controller for controller in controllers}
        self.queue = WorkQueue()
        self.tracked: set[ObjectKey] = set()
        self._applier, self._data_plane, self._leadership = applier, data_plane, leadership
        self._metrics, self._workers, self._resync = metrics, workers, resync_seconds
        self._reads, self._trust = reads, trust
        self._failures: dict[ObjectKey, int] = {}
        metrics.depth.set_function(lambda: float(len(self.queue)))

    def mark(self, kind: str, namespace: str, name: str, *, first: bool = False) -> None:
        """Queue a pass: the object, or one it depends on, may have changed; `first`: before all others."""
        if kind in self.controllers:
            key = ObjectKey(kind, namespace, name)
            self.tracked.add(key)
            self.queue.mark(key, first=first)

    def namespaces(self) -> set[str]:
        return {key.namespace for key in self.tracked}

    async def run(self) -> None:
        """Wait for leadership, look at everything known, then work until cancelled."""
        await self._leadership.acquired.wait()
        self._ours_now(self.tracked)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._resync_forever())
                group.create_task(self._work("first"))  # a rollback waits for no slow pass of another object
                for number in range(self._workers + TRIAL_WORKERS):
                    group.create_task(self._work("trials" if number < TRIAL_WORKERS else "all"))
        finally:
            self.queue.close()

    def _ours_now(self, keys: Iterable[ObjectKey]) -> None:
        """All need a pass: first those on trial, because the fast lane reads no arm of an object before its pass."""
        for key in keys:
            body = self._cached(key)
            first = body is not None and key.kind == MODEL_DEPLOYMENT.kind and on_trial(body)
            self.mark(key.kind, key.namespace, key.name, first=first)

    def _cached(self, key: ObjectKey) -> dict[str, Any] | None:
        if self._reads is None or key.kind not in self.controllers:
            return None
        return self._reads.cache.get(self.controllers[key.kind].kind, key.namespace, key.name)

    async def _work(self, line: Line) -> None:
        while True:
            key = await self.queue.take(line)
            try:
                await self.one_pass(key)
            finally:
                self.queue.done(key)

    async def _resync_forever(self) -> None:
        # The lists behind the cache are only good from here on: an earlier one could miss the last writes of the
        # leader before us. Until they are there, passes read live.
        self._ours_now(await self._list_again())
        while True:
            await asyncio.sleep(self._resync)
            await self._list_again()
            for key in tuple(self.tracked):
                # Spread over a tenth of the interval: a thousand objects must not come together.
                self.queue.mark_later(key, random.uniform(0, self._resync / 10))

    async def _list_again(self) -> set[ObjectKey]:
        """Lists every kind; the objects no event has told of yet."""
        if self._reads is None:
            return set()
        await self._reads.refresh()
        kinds = [controller.kind for controller in self.controllers.values()]
        listed = {ObjectKey(kind.kind, *place) for kind in kinds for place in self._reads.cache.names(kind)}
        fresh = listed - self.tracked
        self.tracked |= fresh
        return fresh

    async def one_pass(self, key: ObjectKey) -> None:
        """Gather, decide, apply; errors end in a later retry, never in an exception."""
        # Around all of it: the lines of a pass that failed say what they are about, too.
        with about(object=f"{key.kind} {key.namespace}/{key.name}"):
            await self._counted_pass(key)

    async def _counted_pass(self, key: ObjectKey) -> None:
        started = time.monotonic()
        result = "error"
        try:
            async with asyncio.timeout(PASS_SECONDS):
                result = await self._attempt(key)
            self._failures.pop(key, None)
        except errors.NotLeading:
            result = "not_leading"  # this process ends
        except errors.InvalidSpec as error:
            await self._report(key, error)
        except errors.Conflict as error:
            self._retry(key, str(error), logging.INFO)  # somebody wrote in between: decide again
        except (errors.KubeError, DataPlaneUnavailable, DataPlaneRefused, TimeoutError) as error:
            self._retry(key, str(error) or f"no end after {PASS_SECONDS:.0f} s")
        except Exception as error:
            log.exception("%s: unexpected error", key)
            self._retry(key, repr(error))
        finally:
            self._metrics.seconds.labels(kind=key.kind).observe(time.monotonic() - started)
            self._metrics.reconciles.labels(kind=key.kind, result=result).inc()

    async def _attempt(self, key: ObjectKey) -> str:
        self._leadership.guard()
        if self._trust is not None:
            await self._trust.ensure(key.namespace)
        return await self._look(key)

    async def _look(self, key: ObjectKey) -> str:
        controller = self.controllers[key.kind]
        snapshot = await controller.gather(key.namespace, key.name)
        if snapshot is None:
            if self._reads is not None and await self._reads.relearn(controller.kind, key.namespace, key.name):
                raise errors.Conflict(f"{key} exists, and the cache did not have it")
            await self._part(controller, key)
            return "gone"
        tried = key.kind == MODEL_DEPLOYMENT.kind and on_trial(snapshot.object)
        (self.queue.on_trial.add if tried else self.queue.on_trial.discard)(key)
        _tell_logs(key.kind, snapshot)
        plan = controller.decide(snapshot)
        await self._applier.apply(controller.kind, snapshot, plan)
        if plan.requeue_after is not None:
            self.queue.mark_later(key, plan.requeue_after)
        return "ok"

    async def _report(self, key: ObjectKey, error: errors.InvalidSpec) -> None:
        # Only another spec (or another operator) helps: the next event or resync brings us back.
        snapshot = BaseSnapshot(now=utc_now(), object=error.live)
        await self._applier.blame(self.controllers[key.kind].kind, snapshot, error)
        log.warning("%s: %s", key, error)

    async def _part(self, controller: Controller[Any], key: ObjectKey) -> None:
        if self._trust is not None:
            self._trust.forget(key.namespace)  # the namespace may have gone with it, and come back
        for call in controller.gone(key.namespace, key.name):
            try:
                await self._data_plane.call(key.namespace, call)
            except DataPlaneRefused as error:
                log.warning("%s: gone; the data plane refused %s: %s", key, call.path, error)
        self._metrics.loop.gone(key.kind, key.namespace, key.name)
        self.tracked.discard(key)
        self.queue.on_trial.discard(key)

    def _retry(self, key: ObjectKey, why: str, level: int = logging.WARNING) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(LAST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures - 1, 16)) * random.uniform(0.8, 1.2)
        log.log(level, "%s: pass failed (%d in a row), again in %.1f s: %s", key, failures, delay, why)
        self.queue.mark_later(key, delay)


def _tell_logs(kind: str, snapshot: BaseSnapshot) -> None:
    """Adds the trace of the training or rollout to the log lines of this pass."""
    tell(trace_id=of_object(kind, snapshot.object))
    status = snapshot.object.get("status") or {}
    arm = status.get("canary") or status.get("stable") or {}
    if arm.get("revision"):
        tell(revision=str(arm["revision"]))


def on_trial(body: Mapping[str, Any]) -> bool:
    """Users meet an arm that is not proven yet, or that may have to go back to the one before."""
    status = body.get("status") or {}
    playing = (status.get("experiment") or {}).get("phase", "Finished") != "Finished"
    return bool(status.get("canary") or status.get("previous") or playing)
