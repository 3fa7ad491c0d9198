"""The SDK's memory client against the real service: it stores, recalls and gives feedback, and never raises."""

import httpx

from learnloop_sdk.counters import Counters
from learnloop_sdk.identity import Identity
from learnloop_sdk.memory import MemoryClient, Recall

from .conftest import Api


def client(api: Api) -> MemoryClient:
    return MemoryClient(api.client, Identity(namespace="team-a"), "sdk-agent", Counters())


async def test_what_is_stored_comes_back_and_feedback_on_it_is_taken(api: Api) -> None:
    memory = client(api)
    assert await memory.store({"text": "the tide turns at six"}, memory_type="semantic", session_id="s", origin="note")
    assert await memory.store_many([{"text": "one gull"}, {"text": "two gulls"}], importance=0.9)
    found = await memory.retrieve({"question": "when does the tide turn"}, k=2)
    assert found.memories[0]["content"]["text"] == "the tide turns at six"
    assert await memory.feedback(found, helpful=[found.memories[0]["id"]])
    assert not await memory.feedback(found)
    assert not await memory.feedback(Recall(), reward=1.0)


async def test_a_refusal_costs_the_memory_and_nothing_else(api: Api) -> None:
    assert not await client(api).store({"text": "x"}, memory_type="dream")
    gone = MemoryClient(httpx.AsyncClient(base_url="http://127.0.0.1:9"), Identity(namespace="a"), "x", Counters())
    assert await gone.retrieve({"q": "x"}) == Recall()
