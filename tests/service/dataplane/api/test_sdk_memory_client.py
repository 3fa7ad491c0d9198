"""The SDK's memory client against the real service: it stores, recalls and gives feedback, and never raises."""

import json
from collections.abc import Mapping

import httpx

from learnloop_sdk.errors import Counters
from learnloop_sdk.http_client import Http, Identity, Response
from learnloop_sdk.memory import MemoryClient, Recall
from learnloop_sdk.outbox import Parcel, Recorder, Service, Spool
from learnloop_sdk.trajectory import redact_text

from ..conftest import Api


class InProcess:
    """The service in this process, which has no port."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Response:
        answer = await self._client.post(
            url, content=body, headers={"content-type": "application/json", **headers}, timeout=seconds
        )
        return Response(answer.status_code, answer.content)


def service_of(api: Api) -> Service:
    return Service(InProcess(api.client), str(api.client.base_url), Identity(namespace="team-a"))  # type: ignore[arg-type]


def client_of(service: Service) -> MemoryClient:
    recorder = Recorder(Spool(), service.deliver, Counters())
    return MemoryClient(service, recorder, "sdk-agent", redact_text, Counters())


def client(api: Api) -> MemoryClient:
    return client_of(service_of(api))


async def test_what_is_stored_comes_back_and_feedback_on_it_is_taken(api: Api) -> None:
    memory = client(api)
    assert await memory.store({"text": "the tide turns at six"}, memory_type="semantic", session_id="s", origin="note")
    for text in ("one gull", "two gulls"):
        assert await memory.store({"text": text}, importance=0.9)
    found = await memory.retrieve({"question": "when does the tide turn"}, k=2)
    assert found.memories[0]["content"]["text"] == "the tide turns at six"
    assert await memory.feedback(found, helpful=[found.memories[0]["id"]])
    assert not await memory.feedback(found)
    assert not await memory.feedback(Recall(), reward=1.0)


async def test_a_refusal_costs_the_memory_and_nothing_else(api: Api) -> None:
    assert not await client(api).store({"text": "x"}, memory_type="dream")
    http = Http()
    away = Service(http, "http://127.0.0.1:9", Identity(namespace="a"))
    assert await client_of(away).retrieve({"q": "x"}) == Recall(degraded=["unavailable"])
    await http.close()


async def test_what_is_stored_again_because_nobody_knew_it_was_stored_is_there_once(api: Api) -> None:
    """As after a time-out: the service had it, the client did not hear of it, and the outbox sends it again."""
    service = service_of(api)
    sent = {"agent_id": "twice", "memory_type": "semantic", "content": {"text": "a buoy"}, "idempotency_key": "k-1"}
    for _ in range(2):
        await service.deliver(Parcel("x", b"/api/v1/memory/store\n" + json.dumps(sent).encode()))
    entries = await api.call("GET", "/api/v1/memory/entries?agent_id=twice")
    assert [entry["content"]["text"] for entry in entries["memories"]] == ["a buoy"]
