"""Passes that go wrong, what is said of them, and what they must leave alone."""

import asyncio
import io
import json
import logging
from datetime import UTC, datetime

import pytest

from learnloop_common.telemetry import set_up
from learnloop_operator.core.plan import BaseSnapshot, Call, Plan
from learnloop_operator.data_plane_client import DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.kube.cached_reads import CACHED, CachedReads
from learnloop_operator.kube.errors import Forbidden, NotLeading, NotOurs, Unavailable
from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT, TRAINING_JOB
from learnloop_operator.kube.object_cache import ObjectCache
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.reconcile.apply_plan import blamed, readable
from learnloop_operator.reconcile.work_queue import ObjectKey, Runtime

from .scripted_controllers import NOW, TRIED, A, Applied, B, Leading, Scripted, runtime


async def test_an_object_that_only_the_cache_lacks_is_not_taken_for_deleted() -> None:
    gone: list[str] = []

    class Absent(Scripted):
        async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
            return None

        def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
            gone.append(name)
            return ()

    class There(CachedReads):
        async def relearn(self, kind, namespace: str, name: str):
            return {"metadata": {"name": name}} if name == "a" else None

    reads = There(None, ObjectCache(CACHED))
    made = runtime(Absent({}), reads=reads)
    await made.one_pass(A)
    await made.one_pass(B)
    assert gone == ["b"]
    assert A in made.queue._timers, "it is looked at again"
    made.queue.close()


async def test_one_broken_object_never_stops_the_others() -> None:
    controller = Scripted({"a": RuntimeError("bug"), "b": Unavailable("down")})
    made = runtime(controller)
    for name in ("a", "b", "c"):
        await made.one_pass(ObjectKey("TrainingJob", "ns", name))
    assert controller.names == ["a", "b", "c"]
    assert made._failures == {A: 1, B: 1}
    del controller.errors["a"]
    await made.one_pass(A)
    assert A not in made._failures
    made.queue.close()


@pytest.mark.parametrize(("status", "breach"), [({}, True), ({"canary": {"name": "c"}}, False)])
async def test_a_breach_and_a_trial_have_their_pass_while_every_worker_waits(status: dict, breach: bool) -> None:
    over, names = asyncio.Event(), list[str]()

    class Slow(Scripted):
        async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
            names.append(name)
            if name != TRIED.name:
                if len(names) == 3:
                    made.mark(TRIED.kind, TRIED.namespace, TRIED.name, first=breach)
                await asyncio.Event().wait()  # as a dry run of a RewardPolicy takes its time
            elif len(names) > 1:
                over.set()
            return BaseSnapshot(now=NOW, object={"metadata": {"name": name, "namespace": namespace}, "status": status})

    made = runtime(Slow({}), Slow({}, kind=MODEL_DEPLOYMENT))
    made._leadership.acquired.set()
    made.mark(TRIED.kind, TRIED.namespace, TRIED.name)
    for name in "abc":
        made.mark("TrainingJob", "ns", name)
    working = asyncio.create_task(made.run())
    await asyncio.wait_for(over.wait(), 50)
    assert names == [TRIED.name, "a", "b", TRIED.name]
    working.cancel()
    made._leadership.acquired.clear()


@pytest.mark.parametrize(
    ("status", "first"),
    [
        ({"canary": {"name": "c"}}, True),
        ({"previous": {"name": "p"}}, True),
        ({"experiment": {"phase": "Running"}}, True),
        ({"experiment": {"phase": "Finished"}, "stable": {"name": "s"}}, False),
    ],
)
@pytest.mark.parametrize("how", ["the Lease", "a listing"])
async def test_whoever_takes_over_looks_first_at_what_is_on_trial(status, first, how):
    passes = await _taken_over({"status": status}, how)
    assert not first or passes[0] == TRIED.name


async def _taken_over(tried: dict, how: str) -> list[str]:
    """The passes of a new leader over fifty objects at rest and the one that is `tried`, by name."""
    cache, leading, listed, over = ObjectCache(CACHED), Leading(), asyncio.Event(), asyncio.Event()
    leading.acquired = asyncio.Event()
    passes: list[str] = []
    keys = {ObjectKey(MODEL_DEPLOYMENT.kind, "ns", f"at-rest-{number}") for number in range(50)} | {TRIED}

    class Listed(CachedReads):
        async def refresh(self) -> None:
            listed.set()

    class Looking(Scripted):
        async def gather(self, namespace: str, name: str) -> BaseSnapshot | None:
            passes.append(name)
            if len(passes) == len(keys):
                over.set()
            return await super().gather(namespace, name)

    made = Runtime(
        [Looking({}, kind=MODEL_DEPLOYMENT)],
        Applied(),
        None,
        leading,
        OperatorMetrics(),
        workers=1,
        resync_seconds=60,
        reads=Listed(None, cache, ()),
    )
    running = asyncio.create_task(made.run())
    for key in keys:
        body = tried if key == TRIED else {"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}
        metadata = {"namespace": key.namespace, "name": key.name, "resourceVersion": "1"}
        cache.put(MODEL_DEPLOYMENT, {**body, "metadata": {**metadata, **body.get("metadata", {})}})
    if how != "a listing":
        made.tracked |= keys
    leading.acquired.set()
    await over.wait()
    running.cancel()
    assert set(passes) == {key.name for key in keys}
    return passes


async def test_a_pass_of_a_process_that_does_not_lead_is_not_repeated() -> None:
    made = runtime(Scripted({"a": NotLeading("lost")}))
    await made.one_pass(A)
    assert not made._failures
    assert not len(made.queue)
    made.queue.close()


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
    conditions = {item["type"]: item for item in blamed(snapshot, Forbidden("exceeded quota: tight"))["conditions"]}
    assert {name: item["status"] for name, item in conditions.items()} == {
        "Ready": "True",
        "Reconciling": "True",
        "Stalled": "False",
    }
    assert (conditions["Ready"]["reason"], conditions["Ready"]["message"]) == ("Forbidden", "exceeded quota: tight")


def test_what_failed_shows_where_kubectl_get_looks() -> None:
    snapshot = BaseSnapshot(now=datetime(2026, 1, 1, tzinfo=UTC), object={"metadata": {}})
    status = blamed(snapshot, NotOurs("ConfigMap ns/md-routing exists: rename or delete one of the two"))
    assert readable(MODEL_DEPLOYMENT, status)["verdict"].startswith("ConfigMap ns/md-routing exists")
    assert "verdict" not in readable(TRAINING_JOB, status)
    assert [readable(kind, status)["phase"] for kind in (MODEL_DEPLOYMENT, TRAINING_JOB)] == ["Pending", "Pending"]
    assert readable(TRAINING_JOB, {**status, "phase": "Training"})["phase"] == "Training"


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
    *lines, last = [json.loads(line) for line in text.getvalue().splitlines()]
    assert lines
    for line in lines:
        assert (line["object"], line["revision"]) == ("TrainingJob ns/a", "3f9a2c81")
        assert len(line["trace_id"]) == 32
    assert set(last) == {"at", "level", "logger", "message"}
    made.queue.close()
