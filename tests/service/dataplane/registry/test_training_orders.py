"""Who had an agent train, in the audit chain."""

from typing import Any

from ..conftest import Api, eventually

IDENTITY = "0123456789abcdef" * 2
ORDER = {
    "agent": "walker",
    "job": "walker-3",
    "by": "alice@example.com",
    "verified": True,
    "at": "2026-05-01T12:00:00Z",
    "value": "now at 2026-05-01T11:59:00Z by alice@example.com",
}


async def test_an_order_to_train_is_in_the_chain_once_however_often_it_is_told(api: Api) -> None:
    path = f"/api/v1/agents/walker/training-orders/{IDENTITY}"
    assert (await api.call("PUT", path, json=ORDER)) == {"new": True}
    assert (await api.call("PUT", path, json=ORDER)) == {"new": False}

    async def sealed() -> list[dict[str, Any]] | None:
        asked = {"action": "training.ordered"}
        return (await api.call("GET", "/api/v1/audit/records", params=asked))["records"] or None

    (record,) = await eventually(sealed, 60.0)
    assert record["subject"] == "agent/walker"
    assert (record["detail"]["by"], record["detail"]["job"]) == ("alice@example.com", "walker-3")
    assert (await api.call("PUT", path, json=ORDER)) == {"new": False}, "it is sealed by now"
    await api.call("PUT", path, 409, json=ORDER | {"agent": "another"})
    await api.call("PUT", path.removesuffix("f"), 422, json=ORDER)
