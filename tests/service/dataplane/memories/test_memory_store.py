"""Storing and recalling memories."""

import pytest
from hypothesis import given, strategies as st

from learnloop_dataplane.stems import MAX_TEXT, text_of

from ..conftest import Api


async def _store(api: Api, text: str, status: int = 201, **changes: object) -> dict:
    body = {"agent_id": "minder", "memory_type": "semantic", "content": {"text": text}} | changes
    return await api.call("POST", "/api/v1/memory/store", status, json=body)


async def test_the_same_key_stores_the_same_memory_once(api: Api) -> None:
    first = await _store(api, "once", idempotency_key="k1")
    again = await _store(api, "once", 200, idempotency_key="k1")
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["id"] == again["id"]
    refused = await _store(api, "something else", 409, idempotency_key="k1")
    assert refused["error"]["field"] == "idempotency_key"


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
