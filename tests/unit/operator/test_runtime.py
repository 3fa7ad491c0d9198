"""Queue, retries, leadership and the proof of being awake."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from ports import held_port

from learnloop_operator.adapters.cache import Cache
from learnloop_operator.adapters.data_plane import DataPlane, DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.adapters.echo import LIMIT_SECONDS, Echo
from learnloop_operator.adapters.events import BURST, Recorder
from learnloop_operator.adapters.kinds import LEASE, MODEL_DEPLOYMENT, TRAINING_JOB
from learnloop_operator.adapters.kube_errors import Conflict, Forbidden, KubeError, NotLeading, NotOurs, Unavailable
from learnloop_operator.adapters.lease import FENCE_SECONDS, LEASE_SECONDS, Leadership
from learnloop_operator.adapters.metrics import Metrics
from learnloop_operator.adapters.reads import CACHED
from learnloop_operator.adapters.settings import SettingsError, from_environment
from learnloop_operator.controllers.apply import blamed, check_ownership, told
from learnloop_operator.controllers.dirty_queue import BACKGROUND_SHARE, DirtyQueue, Key
from learnloop_operator.controllers.relations import Relations
from learnloop_operator.controllers.runtime import Runtime
from learnloop_operator.controllers.wiring import own_handler
from learnloop_operator.core.plan import Call, Notice, Plan
from learnloop_operator.core.snapshot import Snapshot

NOW = datetime(2026, 3, 1, tzinfo=UTC)
A, B = Key("TrainingJob", "ns", "a"), Key("TrainingJob", "ns", "b")


async def test_an_object_marked_many_times_gets_one_pass() -> None:
    queue = DirtyQueue()
    for _ in range(5):
        queue.mark(A)
    assert len(queue) == 1
    assert await queue.take() == A
    queue.done(A)
    assert len(queue) == 0


async def test_what_is_marked_during_a_pass_gets_another_one_after_it() -> None:
    queue = DirtyQueue()
    queue.mark(A)
    await queue.take()
    queue.mark(A)
    queue.mark(B)
    assert await queue.take() == B, "never two passes over one object at a time"
    queue.done(A)
    assert await queue.take() == A


async def test_an_earlier_timer_wins_and_an_event_overtakes_it() -> None:
    queue = DirtyQueue()
    queue.mark_later(A, 0.01)
    queue.mark_later(A, 60.0)
    async with asyncio.timeout(50):  # sooner than the later timer, however slow the machine
        assert await queue.take() == A
    queue.done(A)
    queue.mark_later(A, 60.0)
    queue.mark(A)
    assert len(queue) == 1
    queue.close()


async def test_one_dirty_object_does_not_wait_for_a_thousand_of_another_namespace() -> None:
    queue = DirtyQueue()
    for number in range(1000):
        queue.mark(Key("TrainingJob", "crowded", f"t-{number}"))
    quiet = Key("TrainingJob", "quiet", "t")
    queue.mark(quiet)
    assert quiet in [await queue.take() for _ in range(2)]


async def test_news_goes_before_a_resync_which_still_gets_its_share() -> None:
    queue = DirtyQueue()
    for number in range(100):
        queue.mark(Key("TrainingJob", "ns", f"resync-{number}"), urgent=False)
    for number in range(100):
        queue.mark(Key("TrainingJob", "ns", f"news-{number}"))
    queue.mark(Key("TrainingJob", "ns", "resync-99"))
    first = [(await queue.take()).name for _ in range(BACKGROUND_SHARE * 5)]
    assert sum(name.startswith("resync") for name in first) == 5
    rest = [(await queue.take()).name for _ in range(len(queue))]
    assert len({*first, *rest}) == 200, "each exactly once"
    assert "resync-99" in rest[:80], "what became news has left the background"


@dataclass
class Scripted:
    """A controller whose passes go wrong as told."""

    errors: dict[str, Exception]
    kind: Any = TRAINING_JOB
    seen: list[str] = field(default_factory=list)

    async def gather(self, namespace: str, name: str) -> Snapshot | None:
        self.seen.append(name)
        if name in self.errors:
            raise self.errors[name]
        return Snapshot(now=NOW, object={"metadata": {"name": name, "namespace": namespace}})

    def decide(self, snapshot: Snapshot) -> Plan:
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


def runtime(controller: Scripted) -> Runtime:
    made = Runtime([controller], _Applied(), None, _Leading(), Metrics(), workers=2, resync_seconds=60)  # type: ignore[arg-type]
    return made


async def test_one_broken_object_never_stops_the_others() -> None:
    controller = Scripted({"a": RuntimeError("bug"), "b": Unavailable("down")})
    made = runtime(controller)
    for name in ("a", "b", "c"):
        await made.one_pass(Key("TrainingJob", "ns", name))
    assert controller.seen == ["a", "b", "c"]
    assert made._failures == {A: 1, B: 1}
    del controller.errors["a"]
    await made.one_pass(A)
    assert A not in made._failures
    made.queue.close()


def lease_kube(wire_lease: dict[str, Any]) -> Any:
    class Fake:
        async def find(self, *_: Any) -> Any:
            return wire_lease.get("lease")

        async def get(self, *_: Any) -> Any:
            return wire_lease["lease"]

        async def create(self, manifest: Any) -> None:
            wire_lease["lease"] = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "1"}}

        async def replace(self, manifest: Any) -> None:
            if wire_lease.get("broken"):
                raise Unavailable("no answer")
            wire_lease["lease"] = manifest

    return Fake()


async def test_a_standby_takes_over_only_after_a_whole_lease_of_silence_by_its_own_clock() -> None:
    store: dict[str, Any] = {}
    clock = [0.0]
    first = Leadership(lease_kube(store), "ns", "l", "one", clock=lambda: clock[0])
    second = Leadership(lease_kube(store), "ns", "l", "two", clock=lambda: clock[0])
    assert await first.attempt()
    assert not await second.attempt()
    clock[0] = LEASE_SECONDS - 0.1
    assert not await second.attempt()
    clock[0] = LEASE_SECONDS + 0.1
    assert await second.attempt()
    assert not await first.attempt()


async def test_who_cannot_renew_stops_writing_before_anyone_else_may_start() -> None:
    store: dict[str, Any] = {}
    clock = [0.0]
    leader = Leadership(lease_kube(store), "ns", "l", "one", clock=lambda: clock[0])
    await leader.attempt()
    store["broken"] = True
    clock[0] = FENCE_SECONDS - 0.1
    await leader.attempt()
    leader.guard()
    clock[0] = FENCE_SECONDS
    with pytest.raises(NotLeading):
        leader.guard()
    assert FENCE_SECONDS < LEASE_SECONDS


async def test_a_released_lease_is_taken_at_once() -> None:
    store: dict[str, Any] = {}
    first = Leadership(lease_kube(store), "ns", "l", "one")
    second = Leadership(lease_kube(store), "ns", "l", "two")
    await first.attempt()
    await second.attempt()
    await first.release()
    assert not first.held
    assert await second.attempt()


def test_a_lease_watch_that_delivers_nothing_is_noticed() -> None:
    clock = [0.0]
    echo = Echo(lambda: clock[0])
    clock[0] = LIMIT_SECONDS + 1
    assert "lease watch" in (echo.silence() or "")
    echo.lease_seen()
    assert echo.silence() is None


def test_a_write_that_never_comes_back_is_noticed_and_one_that_came_early_is_not() -> None:
    clock = [0.0]
    echo = Echo(lambda: clock[0])
    echo.seen("TrainingJob", "ns", "early", "12")
    echo.expect("TrainingJob", "ns", "early", "12")
    assert "TrainingJob" not in echo.lags()
    echo.expect("TrainingJob", "ns", "late", "13")
    echo.seen("TrainingJob", "ns", "late", "11")
    clock[0] = LIMIT_SECONDS + 1
    echo.lease_seen()
    assert "TrainingJob watch" in (echo.silence() or "")
    echo.seen("TrainingJob", "ns", "late", "13")
    assert echo.silence() is None


async def test_repeated_events_become_one_series_and_failures_fail_nothing() -> None:
    sent: list[tuple[str, Any]] = []

    class Kube:
        async def create(self, body: Any) -> None:
            sent.append(("create", body))

        async def patch(self, *args: Any) -> None:
            sent.append(("patch", args[3]))
            raise KubeError("refused")

    recorder = Recorder(Kube(), "op")  # type: ignore[arg-type]
    about = {"apiVersion": "v", "kind": "K", "metadata": {"name": "x", "namespace": "ns", "uid": "u"}}
    for _ in range(BURST + 10):
        recorder.note(about, Notice("Normal", "Held", "no data"))
    task = asyncio.create_task(recorder.run())
    await recorder.drain(2)
    task.cancel()
    assert sum(kind == "create" for kind, _ in sent) == 1
    assert len(sent) == BURST, "a loud object is cut off"
    assert sent[-1][1]["series"]["count"] == BURST


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
    snapshot = Snapshot(now=NOW, object={"metadata": {"generation": 1}, "status": {"conditions": [ready]}})
    held = {item["type"]: item["status"] for item in blamed(snapshot, DataPlaneUnavailable("x"))["conditions"]}
    assert held == {"Ready": "True", "Reconciling": "True", "Stalled": "False"}
    refused = {item["type"]: item["status"] for item in blamed(snapshot, DataPlaneRefused("x"))["conditions"]}
    assert refused == {"Ready": "False", "Reconciling": "False", "Stalled": "True"}


def test_a_quota_is_said_in_the_status_and_takes_nobodys_readiness_away() -> None:
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "t"}]
    snapshot = Snapshot(now=datetime(2026, 1, 1, tzinfo=UTC), object={"metadata": {}, "status": {"conditions": ready}})
    found = {item["type"]: item for item in blamed(snapshot, Forbidden("exceeded quota: tight"))["conditions"]}
    assert {name: item["status"] for name, item in found.items()} == {
        "Ready": "True",
        "Reconciling": "True",
        "Stalled": "False",
    }
    assert (found["Ready"]["reason"], found["Ready"]["message"]) == ("Forbidden", "exceeded quota: tight")


def test_what_failed_shows_where_kubectl_get_looks() -> None:
    snapshot = Snapshot(now=datetime(2026, 1, 1, tzinfo=UTC), object={"metadata": {}})
    status = blamed(snapshot, NotOurs("ConfigMap ns/md-routing exists: rename or delete one of the two"))
    assert told(MODEL_DEPLOYMENT, status)["verdict"].startswith("ConfigMap ns/md-routing exists")
    assert "verdict" not in told(TRAINING_JOB, status)


async def test_the_data_plane_is_asked_for_the_objects_namespace_and_held_when_down(wire: Any) -> None:
    wire.answer(404)
    wire.answer(200, {"job": "t", "surprise": 1})
    wire.answer(503, {"error": {"message": "NATS is down"}})
    client = DataPlane(wire.url, "/nonexistent", timeout=60)
    assert await client.run("ns", "t") is None
    with pytest.raises(DataPlaneUnavailable, match=r"breaks the contract at surprise"):
        await client.run("ns", "t")
    with pytest.raises(DataPlaneUnavailable, match="NATS is down"):
        await client.call("ns", Call("DELETE", "/api/v1/training/runs/t"))
    await client.close()
    with held_port() as dead, pytest.raises(DataPlaneUnavailable, match="does not answer"):
        await DataPlane(f"http://127.0.0.1:{dead}", "/nonexistent").run("ns", "t")


def test_agents_are_marked_when_their_policy_changes_and_policies_when_an_agent_joins() -> None:
    relations = Relations()
    agent, policy = Key("LearningAgent", "ns", "la"), Key("RewardPolicy", "ns", "rp")
    body = {"metadata": {"namespace": "ns"}, "spec": {"rewardPolicyRef": {"name": "rp"}}}
    assert relations.changed(agent, body, deleted=False) == {agent, policy}
    assert relations.changed(agent, body, deleted=False) == {agent}
    assert relations.changed(policy, {"metadata": {"namespace": "ns"}}, deleted=False) == {policy, agent}
    assert relations.changed(agent, body, deleted=True) == {agent, policy}
    assert relations.changed(policy, {"metadata": {"namespace": "ns"}}, deleted=False) == {policy}


def test_settings_name_the_variable_the_value_and_the_fix() -> None:
    assert from_environment({"LEARNLOOP_WATCH_NAMESPACE": "a, b"}).watch_namespaces == ("a", "b")
    with pytest.raises(SettingsError, match=r"LEARNLOOP_DATA_URL is 'ftp://x': it must start with http"):
        from_environment({"LEARNLOOP_DATA_URL": "ftp://x"})
    with pytest.raises(SettingsError, match="LEARNLOOP_WORKERS is '0'"):
        from_environment({"LEARNLOOP_WORKERS": "0"})


def test_the_lease_is_addressed_where_the_api_server_keeps_it() -> None:
    assert LEASE.path("ns", "x") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/x"


async def test_an_object_is_looked_at_once_whether_the_listing_or_the_watch_tells_of_it_first() -> None:
    body = {"metadata": {"namespace": "ns", "name": "a", "resourceVersion": "7"}, "spec": {}}
    for listed_first in (True, False):
        made, cache = runtime(Scripted({})), Cache(CACHED)
        handle = own_handler(TRAINING_JOB, made, Relations(), Echo(), cache)
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
