"""Storing and recalling memories."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.text import MAX_TEXT, Analyzer, text_of

from ..conftest import Api

JSON = {"content-type": "application/json"}

terms = Analyzer().terms


async def _store(api: Api, text: str, status: int = 201, **changes: object) -> dict:
    body = {"agent_id": "minder", "memory_type": "semantic", "content": {"text": text}} | changes
    return await api.call("POST", "/api/v1/memory/store", status, json=body)


async def test_the_best_match_comes_first_and_says_why(api: Api) -> None:
    for text in ("the pole falls when the cart stops", "paris is in france", "invoices are paid on fridays"):
        await _store(api, text)
    body = {"agent_id": "minder", "context": {"question": "when are invoices paid?"}, "k": 2}
    answer = await api.call("POST", "/api/v1/memory/retrieve", json=body)
    assert UUID(answer["retrieval_id"])
    assert answer["plan"] == "exact"
    best, other = answer["memories"]
    assert best["content"]["text"] == "invoices are paid on fridays"
    assert best["score"] > other["score"]
    assert best["why"] == "words"
    assert best["score"] > 0


async def test_only_the_types_asked_for_come_back(api: Api) -> None:
    await _store(api, "press the red button", memory_type="procedural", agent_id="typist")
    await _store(api, "the button is red", memory_type="semantic", agent_id="typist")
    body = {"agent_id": "typist", "context": "red button", "memory_types": ["procedural"]}
    found = (await api.call("POST", "/api/v1/memory/retrieve", json=body))["memories"]
    assert [memory["memory_type"] for memory in found] == ["procedural"]


async def test_the_same_key_stores_the_same_memory_once(api: Api) -> None:
    first = await _store(api, "once", idempotency_key="k1")
    again = await _store(api, "once", 200, idempotency_key="k1")
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["id"] == again["id"]
    refused = await _store(api, "something else", 409, idempotency_key="k1")
    assert refused["error"]["field"] == "idempotency_key"


async def test_odd_text_is_stored_and_asked_for_without_harm(api: Api) -> None:
    for text in ("", "'; DROP TABLE agents; --", "a & b | !c:*", "\u0000 nul", "\ud800", "ünï çødé 漢字", "x" * 9000):
        body = {"agent_id": "odd", "memory_type": "semantic", "content": {"text": text}}
        await api.call("POST", "/api/v1/memory/store", 201, content=json.dumps(body), headers=JSON)
        query = {"agent_id": "odd", "context": text, "k": 100}
        answer = await api.call("POST", "/api/v1/memory/retrieve", content=json.dumps(query), headers=JSON)
        assert answer["memories"]


@pytest.mark.parametrize(
    ("change", "field"),
    [({"k": 0}, "k"), ({"k": 101}, "k"), ({"memory_types": ["dreams"]}, "memory_types.0"), ({"extra": 1}, "extra")],
)
async def test_a_bad_query_is_refused_with_field_and_value(api: Api, change: dict, field: str) -> None:
    body = {"agent_id": "minder", "context": "x"} | change
    refused = (await api.call("POST", "/api/v1/memory/retrieve", 422, json=body))["error"]
    assert refused["field"] == field
    assert refused["value"] == str(next(iter(change.values())) if field != "memory_types.0" else "dreams")


values = st.recursive(
    st.none() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_any_json_has_a_bounded_text(value: object) -> None:
    assert len(text_of(value)) <= MAX_TEXT


@pytest.mark.parametrize("importance", [0.0, 5e-324, 2.2e-309, 1e-38, 1.0])
async def test_a_memory_of_hardly_any_importance_is_stored_like_any_other(api: Api, importance: float) -> None:
    body = {"agent_id": "light", "memory_type": "semantic", "content": {"text": f"worth {importance!r}"}}
    await api.call("POST", "/api/v1/memory/store", 201, json=body | {"importance": importance})
