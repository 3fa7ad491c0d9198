"""Passes that go wrong, what is said of them, and what they must leave alone."""

import asyncio
import io
import json
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from learnloop_api.telemetry.json_logs import set_up
from learnloop_operator.adapters.data_plane import DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.adapters.kube.concurrency_limit import FEWEST, ConcurrencyLimit
from learnloop_operator.adapters.kube.errors import Conflict, Forbidden, NotLeading, NotOurs, Unavailable
from learnloop_operator.adapters.kube.kinds import (
    DEPLOYMENT,
    LEARNING_AGENT,
    MEMORY_SERVICE,
    MODEL_DEPLOYMENT,
    TRAINING_JOB,
)
from learnloop_operator.adapters.kube.live_or_cached_reads import CACHED, LiveOrCachedReads
from learnloop_operator.adapters.kube.object_cache import ObjectCache
from learnloop_operator.adapters.leadership.namespace_claims import ClaimedElsewhere
from learnloop_operator.adapters.leadership.watch_liveness import WatchLiveness
from learnloop_operator.adapters.operator_metrics import OperatorMetrics
from learnloop_operator.controllers.passes.apply_plan import blamed, check_ownership, told
from learnloop_operator.controllers.passes.runtime import CACHED_LOOKS, Runtime
from learnloop_operator.controllers.queue.object_key import ObjectKey
from learnloop_operator.controllers.watching import kopf_handlers
from learnloop_operator.controllers.watching.kopf_handlers import child_handler, own_handler
from learnloop_operator.controllers.watching.related_objects import RelatedObjects
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.core.snapshot import BaseSnapshot

NOW = datetime(2026, 3, 1, tzinfo=UTC)
A, B = ObjectKey("TrainingJob", "ns", "a"), ObjectKey("TrainingJob", "ns", "b")
TRIED = ObjectKey(MODEL_DEPLOYMENT.kind, "ns", "tried")


@dataclass
class Scripted:
    """A controller whose passes go wrong as told."""

    errors: dict[str, Exception]
    kind: Any = TRAINING_JOB
    seen: list[str] = field(default_factory=list)

    async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
        self.seen.append(name)
        if name in self.errors:
            raise self.errors[name]
        return BaseSnapshot(now=NOW, object={"metadata": {"name": name, "namespace": namespace}})

    def decide(self, snapshot: BaseSnapshot) -> Plan:
        return Plan(status={})

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        return ()


class _Applied:
    async def apply(self, *_: Any, **__: Any) -> None:
        return


class _Leading:
    acquired = asyncio.Event()

    def guard(self) -> None:
        return


def runtime(*controllers: Scripted) -> Runtime:
    made = Runtime(controllers, _Applied(), None, _Leading(), OperatorMetrics(), workers=2, resync_seconds=60)  # type: ignore[arg-type]
    return made


class _Raced:
    """Writes nothing; somebody else was quicker so many times, and the cache has heard of it."""

    def __init__(self, cache: ObjectCache, times: int, heard: bool) -> None:
        self.cache, self.times, self.heard = cache, times, heard
        self.looks: list[bool] = []

    async def apply(self, *_: Any, cached: bool) -> None:
        self.looks.append(cached)
        if cached and len(self.looks) <= self.times:
            if self.heard:
                self.cache.put(TRAINING_JOB, suspended(len(self.looks) + 1))
            raise Conflict("the object has been modified", status=409)


def suspended(version: int) -> dict[str, Any]:
    """A TrainingJob at rest."""
    return {
        "metadata": {"namespace": "ns", "name": "a", "resourceVersion": str(version)},
        "spec": {"suspend": True},
    }


@pytest.mark.parametrize(
    ("times", "heard", "looks"),
    [
        pytest.param(1, True, [True, True], id="the cache knows by now"),
        pytest.param(1, False, [True, False], id="the cache knows nothing yet"),
        pytest.param(99, True, [*[True] * CACHED_LOOKS, False], id="again and again"),
    ],
)
async def test_who_was_overtaken_looks_at_the_cache_again_and_live_only_when_that_does_not_help(
    times: int, heard: bool, looks: list[bool]
) -> None:
    cache = ObjectCache(CACHED)
    cache.put(TRAINING_JOB, suspended(1))
    cache.listed(TRAINING_JOB, {("ns", "a")}, "1")
    applier = _Raced(cache, times, heard)
    made = Runtime(
        [Scripted({})],
        applier,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        _Leading(),  # type: ignore[arg-type]
        OperatorMetrics(),
        workers=2,
        resync_seconds=60,
        reads=LiveOrCachedReads(None, cache, ()),  # type: ignore[arg-type]
    )
    await made.one_pass(A)
    assert applier.looks == looks
    assert not made._failures


async def test_one_broken_object_never_stops_the_others() -> None:
    controller = Scripted({"a": RuntimeError("bug"), "b": Unavailable("down")})
    made = runtime(controller)
    for name in ("a", "b", "c"):
        await made.one_pass(ObjectKey("TrainingJob", "ns", name))
    assert controller.seen == ["a", "b", "c"]
    assert made._failures == {A: 1, B: 1}
    del controller.errors["a"]
    await made.one_pass(A)
    assert A not in made._failures
    made.queue.close()


async def test_what_is_marked_first_has_its_pass_before_what_was_marked_earlier_and_asks_first() -> None:
    made = runtime(Scripted({}))
    for key, first in ((B, False), (A, False), (A, True)):
        made.mark(key.kind, key.namespace, key.name, first=first)
    assert await made.queue.take() == A
    assert made.queue.standing(A).first


@pytest.mark.parametrize(
    ("status", "first"),
    [
        ({"canary": {"name": "c"}}, True),
        ({"previous": {"name": "p"}}, True),
        ({"experiment": {"phase": "Running"}}, True),
        ({"experiment": {"phase": "Finished"}, "stable": {"name": "s"}}, False),
    ],
)
@pytest.mark.parametrize("how", ["the Lease", "a claim", "a listing"])
async def test_whoever_takes_over_looks_first_at_what_is_on_trial(
    status: dict[str, Any], first: bool, how: str
) -> None:
    passes = await _taken_over({"status": status}, how)
    assert [told for told in passes if told[1]] == ([(TRIED.name, True)] if first else [])
    assert not first or passes[0][0] == TRIED.name


@pytest.mark.parametrize("how", ["the Lease", "a claim", "a listing"])
async def test_whoever_takes_over_looks_at_what_was_edited_meanwhile_before_all_that_was_not(how: str) -> None:
    passes = await _taken_over({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}, how)
    assert passes[0] == (TRIED.name, False)


async def _taken_over(tried: dict[str, Any], how: str) -> list[tuple[str, bool]]:
    """The passes of a new leader over fifty objects at rest and the one that is `tried`: name, and whether first."""
    cache, leading, listed, over = ObjectCache(CACHED), _Leading(), asyncio.Event(), asyncio.Event()
    leading.acquired = asyncio.Event()
    passes: list[tuple[str, bool]] = []
    keys = {ObjectKey(MODEL_DEPLOYMENT.kind, "ns", f"at-rest-{number}") for number in range(50)} | {TRIED}

    class Listed(LiveOrCachedReads):
        async def refresh(self) -> None:
            listed.set()

    class Looking(Scripted):
        async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
            key = ObjectKey(MODEL_DEPLOYMENT.kind, namespace, name)
            passes.append((name, made.queue.standing(key).first))
            if len(passes) == len(keys):
                over.set()
            return await super().gather(namespace, name)

    made = Runtime(
        [Looking({}, kind=MODEL_DEPLOYMENT)],
        _Applied(),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        leading,  # type: ignore[arg-type]
        OperatorMetrics(),
        workers=1,
        resync_seconds=60,
        reads=Listed(None, cache, ()),  # type: ignore[arg-type]
    )
    running = asyncio.create_task(made.run())
    if how == "a claim":  # long after this process has the Lease
        leading.acquired.set()
        await listed.wait()
    for key in keys:
        body = tried if key == TRIED else {"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}
        metadata = {"namespace": key.namespace, "name": key.name, "resourceVersion": "1"}
        cache.put(MODEL_DEPLOYMENT, {**body, "metadata": {**metadata, **body.get("metadata", {})}})
    if how != "a listing":
        made.known |= keys
    if how == "a claim":
        made.mark_namespace("ns")
    leading.acquired.set()
    await over.wait()
    running.cancel()
    assert {name for name, _ in passes} == {key.name for key in keys}
    return passes


async def test_a_resync_looks_at_what_has_no_look_of_its_own_coming_soon() -> None:
    made = Runtime([Scripted({})], _Applied(), None, _Leading(), OperatorMetrics(), workers=1, resync_seconds=0.02)  # type: ignore[arg-type]
    made.known |= {A, B}
    marked: list[ObjectKey] = []
    over = asyncio.Event()

    def mark_later(key: ObjectKey, *_: Any, **__: Any) -> None:
        marked.append(key)
        if len(marked) == 3:
            over.set()

    made.queue.mark_later = mark_later  # type: ignore[method-assign]
    made.queue.comes_within = lambda key, seconds: key == A and seconds == 0.01  # type: ignore[method-assign]
    running = asyncio.create_task(made._resync_forever())
    await over.wait()
    running.cancel()
    assert set(marked) == {B}


class Asking(Scripted):
    """A controller whose passes make as many requests as told, in tasks of their own, one at a time being answered."""

    def __init__(self, requests: dict[str, int]) -> None:
        super().__init__({})
        self.requests, self.pace, self.began = requests, ConcurrencyLimit(), asyncio.Event()
        for _ in range(5):
            self.pace.refused()

    async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
        await asyncio.gather(*(self._request(namespace) for _ in range(self.requests[namespace])))
        return await super().gather(namespace, name)

    async def _request(self, namespace: str) -> None:
        async with self.pace.turn():
            self.seen.append(namespace)
            self.began.set()
            await asyncio.sleep(0)


async def test_a_pass_with_many_requests_does_not_hold_up_one_in_another_namespace() -> None:
    controller = Asking({"busy": 10 * FEWEST, "quiet": 1})
    made = runtime(controller)
    busy = asyncio.create_task(made.one_pass(ObjectKey("TrainingJob", "busy", "a")))
    await controller.began.wait()
    await made.one_pass(ObjectKey("TrainingJob", "quiet", "a"))
    assert controller.seen.count("busy") < controller.requests["busy"] // 2
    await busy
    made.queue.close()


async def test_a_pass_refused_for_a_late_renewal_is_made_up_for_one_in_anothers_namespace_is_not() -> None:
    made = runtime(Scripted({"a": NotLeading("late"), "b": ClaimedElsewhere("theirs")}))
    await made.one_pass(A)
    await made.one_pass(B)
    assert set(made.queue._timers) == {A}
    made.queue.close()


def test_what_belongs_to_somebody_else_is_never_taken_over() -> None:
    def owned(uid: str, name: str = "t") -> dict[str, Any]:
        reference = {"kind": "TrainingJob", "name": name, "uid": uid, "controller": True}
        return {"kind": "Service", "metadata": {"name": "s", "namespace": "ns", "ownerReferences": [reference]}}

    check_ownership(owned("1"), owned("1"))
    with pytest.raises(NotOurs, match=r"Service ns/s exists"):
        check_ownership(owned("1"), {"kind": "Service", "metadata": {"name": "s", "namespace": "ns"}})
    with pytest.raises(Conflict, match="waiting for its end"):
        check_ownership(owned("2"), owned("1"))


def test_a_silent_data_plane_takes_nobodys_readiness_away() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    snapshot = BaseSnapshot(now=NOW, object={"metadata": {"generation": 1}, "status": {"conditions": [ready]}})
    held = {item["type"]: item["status"] for item in blamed(snapshot, DataPlaneUnavailable("x"))["conditions"]}
    assert held == {"Ready": "True", "Reconciling": "True", "Stalled": "False"}
    refused = {item["type"]: item["status"] for item in blamed(snapshot, DataPlaneRefused("x"))["conditions"]}
    assert refused == {"Ready": "False", "Reconciling": "False", "Stalled": "True"}


def test_a_quota_is_said_in_the_status_and_takes_nobodys_readiness_away() -> None:
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "t"}]
    snapshot = BaseSnapshot(
        now=datetime(2026, 1, 1, tzinfo=UTC), object={"metadata": {}, "status": {"conditions": ready}}
    )
    found = {item["type"]: item for item in blamed(snapshot, Forbidden("exceeded quota: tight"))["conditions"]}
    assert {name: item["status"] for name, item in found.items()} == {
        "Ready": "True",
        "Reconciling": "True",
        "Stalled": "False",
    }
    assert (found["Ready"]["reason"], found["Ready"]["message"]) == ("Forbidden", "exceeded quota: tight")


def test_what_failed_shows_where_kubectl_get_looks() -> None:
    snapshot = BaseSnapshot(now=datetime(2026, 1, 1, tzinfo=UTC), object={"metadata": {}})
    status = blamed(snapshot, NotOurs("ConfigMap ns/md-routing exists: rename or delete one of the two"))
    assert told(MODEL_DEPLOYMENT, status)["verdict"].startswith("ConfigMap ns/md-routing exists")
    assert "verdict" not in told(TRAINING_JOB, status)
    assert [told(kind, status)["phase"] for kind in (MODEL_DEPLOYMENT, TRAINING_JOB)] == ["Pending", "Pending"]
    assert told(TRAINING_JOB, {**status, "phase": "Training"})["phase"] == "Training"


def test_agents_are_marked_when_their_policy_changes_and_policies_when_an_agent_joins() -> None:
    relations = RelatedObjects()
    agent, policy = ObjectKey("LearningAgent", "ns", "la"), ObjectKey("RewardPolicy", "ns", "rp")
    body = {"metadata": {"namespace": "ns"}, "spec": {"rewardPolicyRef": {"name": "rp"}}}
    assert relations.changed(agent, body, deleted=False) == {agent, policy}
    assert relations.changed(agent, body, deleted=False) == {agent}
    assert relations.changed(policy, {"metadata": {"namespace": "ns"}}, deleted=False) == {policy, agent}
    assert relations.changed(agent, body, deleted=True) == {agent, policy}
    assert relations.changed(policy, {"metadata": {"namespace": "ns"}}, deleted=False) == {policy}


def test_a_memory_service_is_marked_when_an_agents_budget_changes_and_by_nothing_else_of_it() -> None:
    relations = RelatedObjects()
    agent, one, other = (ObjectKey(kind, "ns", name) for kind, name in (
        ("LearningAgent", "la"), ("MemoryService", "one"), ("MemoryService", "other")
    ))  # fmt: skip

    def marked(
        service: str, budget: dict[str, Any] | None = None, deleted: bool = False, **more: Any
    ) -> set[ObjectKey]:
        memory = {"serviceRef": {"name": service}} | ({"budget": budget} if budget else {})
        body = {"metadata": {"namespace": "ns"}, "spec": {"memory": memory}, **more}
        return relations.changed(agent, body, deleted=deleted) - {agent}

    assert marked("one") == {one}
    assert marked("one", status={"trajectories": 1}) == set()
    assert marked("one", {"memories": 5, "size": "1Mi"}) == {one}
    assert marked("one", {"size": "1Mi", "memories": 5}, status={"trajectories": 2}) == set()
    assert marked("one", {"memories": 6}) == {one}
    assert marked("other", {"memories": 6}) == {one, other}
    assert marked("other") == {other}
    assert relations.changed(one, {"metadata": {"namespace": "ns"}}, deleted=False) == {one}
    assert relations.changed(other, {"metadata": {"namespace": "ns"}}, deleted=False) == {other, agent}
    assert marked("other", deleted=True) == {other}


async def test_what_a_thousand_agents_say_to_their_memory_service_is_one_pass_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kopf_handlers, "GATHER_SECONDS", 0.05)
    services = Scripted({}, kind=MEMORY_SERVICE)
    made, service = runtime(services), ObjectKey("MemoryService", "ns", "mem")
    made.known.add(service)
    handle = own_handler(LEARNING_AGENT, made, RelatedObjects(), WatchLiveness(), ObjectCache(CACHED))
    for number in range(1000):
        metadata = {"namespace": "ns", "name": f"la-{number}", "resourceVersion": str(number + 1)}
        memory = {"serviceRef": {"name": "mem"}, "budget": {"memories": number + 1}}
        await handle({"type": "ADDED", "object": {"metadata": metadata, "spec": {"memory": memory}}})
    assert len(made.queue) == 0, "others may speak first"
    assert await made.queue.take() == service
    made.queue.done(service)
    assert len(made.queue) == 0
    made.queue.close()


async def test_what_our_own_children_echo_is_one_pass_a_moment_later_and_news_of_a_child_one_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kopf_handlers, "GATHER_SECONDS", 0.05)
    made, cache = runtime(Scripted({}, kind=MODEL_DEPLOYMENT)), ObjectCache(CACHED)
    made.known.add(TRIED)
    handle = child_handler(DEPLOYMENT, made, cache)

    def event(version: int, name: str) -> dict[str, Any]:
        owner = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": TRIED.kind, "name": TRIED.name, "controller": True}
        metadata = {"namespace": "ns", "name": name, "resourceVersion": str(version), "ownerReferences": [owner]}
        return {"type": "MODIFIED", "object": {"metadata": metadata}}

    for number in (1, 2):
        cache.put(DEPLOYMENT, event(number, f"tried-{number}")["object"])
        await handle(event(number, f"tried-{number}"))
    assert len(made.queue) == 0, "others may follow"
    assert await made.queue.take() == TRIED
    made.queue.done(TRIED)
    assert len(made.queue) == 0
    await handle(event(3, "tried-1"))
    assert len(made.queue) == 1
    made.queue.close()


async def test_an_object_is_looked_at_once_whether_the_listing_or_the_watch_tells_of_it_first() -> None:
    body = {"metadata": {"namespace": "ns", "name": "a", "resourceVersion": "7"}, "spec": {}}
    for listed_first in (True, False):
        made, cache = runtime(Scripted({})), ObjectCache(CACHED)
        handle = own_handler(TRAINING_JOB, made, RelatedObjects(), WatchLiveness(), cache)
        if listed_first:
            cache.put(TRAINING_JOB, body)
        await handle({"type": None, "object": body})
        assert len(made.queue) == 1, "first sight"
        await made.queue.take()
        made.queue.done(A)
        await handle({"type": None, "object": body})
        assert len(made.queue) == 0, "a repeated listing says nothing new"
        await handle({"type": "MODIFIED", "object": body})
        assert len(made.queue) == 1, "the echo of our own write is looked at, in the background"
        made.queue.close()


async def test_what_a_first_listing_shows_is_news_only_where_nobody_has_looked_at_its_generation() -> None:
    made, cache = runtime(Scripted({}), Scripted({}, kind=MODEL_DEPLOYMENT)), ObjectCache(CACHED)
    jobs = own_handler(TRAINING_JOB, made, RelatedObjects(), WatchLiveness(), cache)
    deployments = child_handler(DEPLOYMENT, made, cache)

    def listed(name: str, observed: int) -> dict[str, Any]:
        metadata = {"namespace": "ns", "name": name, "resourceVersion": "5", "generation": 2}
        return {"type": None, "object": {"metadata": metadata, "status": {"observedGeneration": observed}}}

    await jobs(listed("a", 2))
    await jobs(listed("b", 1))
    assert made.queue._queued == {A: False, B: True}
    made.known.add(TRIED)
    owner = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": TRIED.kind, "name": TRIED.name, "controller": True}
    child = {"namespace": "ns", "name": "tried-1", "resourceVersion": "6", "ownerReferences": [owner]}
    await deployments({"type": None, "object": {"metadata": child}})
    assert TRIED not in made.queue._queued, "a moment later, in the background"
    await deployments({"type": None, "object": {"metadata": {**child, "resourceVersion": "7"}}})
    assert made.queue._queued[TRIED], "what changed while the watch was cut"
    made.queue.close()


async def test_an_edit_older_than_our_last_status_is_news_and_the_echo_of_that_status_is_none() -> None:
    made, cache = runtime(Scripted({})), ObjectCache(CACHED)
    handle = own_handler(TRAINING_JOB, made, RelatedObjects(), WatchLiveness(), cache)

    def event(version: int, generation: int, observed: int) -> dict[str, Any]:
        metadata = {"namespace": "ns", "name": "a", "resourceVersion": str(version), "generation": generation}
        return {"type": "MODIFIED", "object": {"metadata": metadata, "status": {"observedGeneration": observed}}}

    await handle(event(5, 1, 1))
    await made.queue.take()
    made.queue.done(A)
    cache.put(TRAINING_JOB, event(7, 2, 1)["object"])  # the answer to our own write, which came after the edit
    await handle(event(6, 2, 1))
    assert made.queue._queued == {A: True}, "before all echoes"
    await made.queue.take()
    made.queue.done(A)
    cache.put(TRAINING_JOB, event(8, 2, 2)["object"])
    await handle(event(8, 2, 2))
    assert made.queue._queued == {A: False}
    made.queue.close()


@pytest.mark.parametrize("error", [ValueError("boom"), Unavailable("the API server is away"), TimeoutError()])
async def test_lines_of_a_pass_that_failed_say_object_revision_and_trace(error: Exception) -> None:
    class Failing(Scripted):
        async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
            metadata = {"name": name, "namespace": namespace, "uid": "u"}
            return BaseSnapshot(now=NOW, object={"metadata": metadata, "status": {"canary": {"revision": "3f9a2c81"}}})

        def decide(self, snapshot: BaseSnapshot) -> Plan:
            raise error

    root = logging.getLogger()
    before, level, text = list(root.handlers), root.level, io.StringIO()
    set_up("INFO", "json", "", text)
    try:
        made = runtime(Failing({}))
        await made.one_pass(A)
        logging.getLogger("after").warning("of nothing")
    finally:
        root.handlers, root.level = before, level
    *told, last = [json.loads(line) for line in text.getvalue().splitlines()]
    assert told
    for line in told:
        assert (line["object"], line["revision"]) == ("TrainingJob ns/a", "3f9a2c81")
        assert len(line["trace_id"]) == 32
    assert set(last) == {"at", "level", "logger", "message"}
    made.queue.close()
