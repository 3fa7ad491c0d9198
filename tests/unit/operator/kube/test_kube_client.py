"""The API client when the network misbehaves, and its comparison that saves writes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate

import pytest
from aiohttp import web
from hypothesis import given, strategies as st
from kubernetes_asyncio.client import Configuration

from learnloop_operator.kube import http_transport
from learnloop_operator.kube.errors import (
    Conflict,
    Gone,
    Invalid,
    KindMissing,
    NotFound,
    NotLeading,
    Unavailable,
    WebhookUnavailable,
)
from learnloop_operator.kube.fenced_client import KubeClient, covers, without_none
from learnloop_operator.kube.kinds import CONFIG_MAP, POD, PYTORCH_JOB, TRAINING_JOB
from learnloop_operator.kube.object_cache import ObjectCache


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "BACKOFFS", (0.01, 0.01))


def refusal(reason: str, code: int) -> dict:
    return {"kind": "Status", "status": "Failure", "reason": reason, "message": "no", "code": code}


async def test_a_webhook_that_is_down_is_no_api_server_that_is_down(wire, kube: KubeClient) -> None:
    cause = 'Internal error occurred: failed calling webhook "vjobset.kb.io": no endpoints available for service'
    wire.answer(500, {"kind": "Status", "status": "Failure", "reason": "InternalError", "message": cause, "code": 500})
    with pytest.raises(WebhookUnavailable, match="vjobset"):
        await kube.get(POD, "ns", "t")
    assert len(wire.requests) == 1, "neither tried again immediately nor a reason to slow all other writes down"


async def test_a_field_that_a_kinds_definition_lacks_is_no_fault_that_passes(wire, kube: KubeClient) -> None:
    message = "failed to create typed patch object (ns/t; g/v1, Kind=K): .spec.new: field not declared in schema"
    wire.answer(500, {"kind": "Status", "status": "Failure", "message": message, "code": 500})
    with pytest.raises(Invalid, match=r"\.spec\.new: field not declared in schema.*replace its CRD"):
        await kube.get(POD, "ns", "t")
    assert len(wire.requests) == 1, "the same words are refused again"


@pytest.mark.parametrize("status", [200, 404])
async def test_every_answer_tells_what_the_api_servers_clock_shows(wire, kube: KubeClient, status: int) -> None:
    body = {"metadata": {"name": "x"}} if status == 200 else refusal("NotFound", 404)
    written = time.time() - 300
    wire.answer(status, body, {"Date": formatdate(written, usegmt=True)})
    await kube.find(POD, "ns", "x")
    assert written - 1.5 <= kube.http.clock.now() <= time.time() - 298.5


async def test_a_429_is_tried_again_after_the_time_the_server_asks_for(wire, kube: KubeClient) -> None:
    wire.answer(429, refusal("TooManyRequests", 429), {"Retry-After": "1"})
    wire.answer(200, {"metadata": {"name": "x"}})
    started = asyncio.get_running_loop().time()
    assert (await kube.get(POD, "ns", "x"))["metadata"]["name"] == "x"
    assert asyncio.get_running_loop().time() - started >= 1


async def test_retries_are_bounded(wire, kube: KubeClient) -> None:
    wire.answer(503, refusal("ServiceUnavailable", 503))
    with pytest.raises(Unavailable):
        await kube.get(POD, "ns", "x")
    assert len(wire.requests) == 3


async def test_a_server_that_hangs_is_unavailable_in_bounded_time(wire) -> None:
    over = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    wire.script.append(hang)
    kube = KubeClient(Configuration(host=wire.url), timeout=0.1)
    try:
        async with asyncio.timeout(200):  # the server answers at the end of the test only
            with pytest.raises(Unavailable):
                await kube.get(POD, "ns", "x")
    finally:
        over.set()
        await kube.close()


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [(404, "NotFound", NotFound), (409, "Conflict", Conflict), (410, "Expired", Gone), (422, "Invalid", Invalid)],
)
async def test_refusals_have_types_and_are_not_repeated(wire, kube, status, reason, error):
    wire.answer(status, refusal(reason, status))
    with pytest.raises(error):
        await kube.get(POD, "ns", "x")
    assert len(wire.requests) == 1


async def test_a_missing_kind_is_not_mistaken_for_a_missing_object(wire, kube: KubeClient) -> None:
    async def bare(_: web.Request) -> web.Response:
        return web.Response(status=404, text="404 page not found")

    wire.script.append(bare)
    with pytest.raises(KindMissing):
        await kube.get(PYTORCH_JOB, "ns", "x")


async def test_an_expired_continue_token_begins_the_list_again(wire, kube: KubeClient) -> None:
    first = {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "token"}}
    wire.answer(200, first)
    wire.answer(410, refusal("Expired", 410))
    wire.answer(200, first)
    wire.answer(200, {"items": [{"metadata": {"name": "b"}}], "metadata": {}})
    pods = await kube.list(POD, "ns")
    assert [item["metadata"]["name"] for item in pods] == ["a", "b"]
    assert pods[0]["kind"] == "Pod"


MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "ns"}, "data": {}}


class Leading:
    """Leads for so many questions."""

    def __init__(self, questions: int) -> None:
        self.questions = questions

    def __call__(self) -> None:
        self.questions -= 1
        if self.questions < 0:
            raise NotLeading("no")


@asynccontextmanager
async def guarded(wire, guard: Leading, **options) -> AsyncIterator[KubeClient]:
    client = KubeClient(Configuration(host=wire.url), guard=guard, **options)
    try:
        yield client
    finally:
        await client.close()


async def test_who_does_not_lead_does_not_write(wire) -> None:
    async with guarded(wire, Leading(0)) as kube:
        for write in (kube.create(MANIFEST), kube.delete(CONFIG_MAP.ref("ns", "x")), kube.replace(MANIFEST)):
            with pytest.raises(NotLeading):
                await write
    assert wire.requests == []


@pytest.mark.parametrize(("questions", "sent"), [(1, 0), (2, 0), (3, 1), (5, 2), (7, 3)])
async def test_leadership_is_asked_before_each_try_and_again_before_its_first_byte(wire, questions, sent):
    wire.answer(503, refusal("ServiceUnavailable", 503))
    async with guarded(wire, Leading(questions)) as kube:
        with pytest.raises(NotLeading if sent < 3 else Unavailable):
            await kube.create(MANIFEST)
    assert len(wire.requests) == sent


async def test_a_write_that_waited_for_a_place_is_not_sent_by_a_leader_that_was_replaced_in_the_meantime(wire):
    over, lead = asyncio.Event(), Leading(1)

    async def slow(_: web.Request) -> web.Response:
        await over.wait()
        return web.json_response({})

    wire.script.append(slow)
    async with guarded(wire, lead) as kube:
        reads = [asyncio.create_task(kube.get(POD, "ns", "x")) for _ in range(http_transport.REQUESTS)]
        await asyncio.sleep(0)
        write = asyncio.create_task(kube.create(MANIFEST))
        await asyncio.sleep(0)
        over.set()
        await asyncio.gather(*reads)
        with pytest.raises(NotLeading):
            await write
    assert not any(method == "POST" for method, _, _ in wire.requests)


async def test_status_that_is_already_there_costs_no_write(wire, kube: KubeClient) -> None:
    metadata = {"uid": "u", "name": "t", "namespace": "ns", "resourceVersion": "1"}
    live = {"apiVersion": TRAINING_JOB.api_version, "kind": "TrainingJob", "metadata": metadata, "status": {"step": 1}}
    await kube.apply_status({"step": 1, "eta": None}, "m", live=live)
    assert wire.requests == []


async def test_a_refused_write_and_a_deletion_correct_the_cache(wire) -> None:
    metadata = {"uid": "u", "name": "x", "namespace": "ns", "labels": {}}
    stale, newer = ({**MANIFEST, "metadata": {**metadata, "resourceVersion": version}} for version in ("5", "7"))
    cache = ObjectCache([CONFIG_MAP])
    cache.put(CONFIG_MAP, stale)
    kube = KubeClient(Configuration(host=wire.url), cache=cache)
    wire.answer(409, refusal("Conflict", 409))
    wire.answer(200, newer)
    with pytest.raises(Conflict):
        await kube.apply({**MANIFEST, "data": {"a": "b"}}, "m", live=stale)
    assert cache.get(CONFIG_MAP, "ns", "x") == newer
    wire.script[:] = []
    wire.answer(200, {})
    wire.answer(404, refusal("NotFound", 404))
    assert await kube.delete(CONFIG_MAP.ref("ns", "x"), live=newer)
    assert cache.get(CONFIG_MAP, "ns", "x") is None
    assert json.loads(wire.requests[2][2])["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    await kube.close()


def test_defaults_of_the_server_are_no_difference() -> None:
    desired = {"spec": {"ports": [{"name": "http", "port": 80}], "replicas": 1}}
    live = {"spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}], "replicas": 1, "paused": False}}
    assert covers(desired, live)


@pytest.mark.parametrize(("ours", "stored"), [("0.5", "500m"), ("1024Mi", "1Gi"), (1, "1"), ("", None), ([], None)])
def test_the_servers_spelling_is_no_difference(ours, stored) -> None:
    assert covers({"a": ours}, {} if stored is None else {"a": stored})


@pytest.mark.parametrize(
    ("ours", "stored"), [(True, "true"), (1, True), (["a"], ["a", "b"]), (False, None), ("1", "2"), ({"x": 1}, [])]
)
def test_real_differences_are_seen(ours, stored) -> None:
    assert not covers({"a": ours}, {} if stored is None else {"a": stored})


async def test_a_field_that_is_no_longer_wanted_is_a_difference(wire, kube: KubeClient) -> None:
    manifest = {**MANIFEST, "data": {"a": "1", "b": "2"}}
    await applied(wire, kube, manifest)
    stored = json.loads(wire.requests[-1][2])
    stored["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    await kube.apply(manifest, "m", live=stored)
    assert len(wire.requests) == 1, "the same again is not written"
    wire.answer(200, stored)
    await kube.apply({**manifest, "data": {"a": "1"}}, "m", live=stored)
    assert len(wire.requests) == 2


async def applied(wire, kube: KubeClient, manifest: dict) -> None:
    metadata = {**manifest["metadata"], "uid": "u", "resourceVersion": "7"}
    wire.answer(200, {**manifest, "metadata": metadata})
    await kube.apply(manifest, "m", live=None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("xy", max_size=2), JSON, max_size=4))
def test_an_object_always_covers_itself_and_null_is_nothing(value: dict) -> None:
    assert covers(without_none(value), value)
    assert covers(value, value)
