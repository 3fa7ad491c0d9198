"""What people decide about rollouts goes into the audit chain, once each."""

from typing import Any

from ..conftest import Api, eventually

IDENTITY = "0123456789abcdef" * 2
DECISION = {
    "model_deployment": "pole", "verb": "pause", "revision": "3f9a2c81", "step": 2, "by": "alice@example.com",
    "verified": True, "at": "2026-01-31T12:00:00Z", "outcome": "obeyed", "message": "on hold at 10 %",
}  # fmt: skip


async def test_a_decision_is_in_the_chain_once_however_often_it_is_told(api: Api) -> None:
    path = f"/api/v1/models/pole/decisions/{IDENTITY}"
    assert (await api.call("PUT", path, json=DECISION)) == {"new": True}
    assert (await api.call("PUT", path, json=DECISION)) == {"new": False}

    async def sealed() -> list[dict[str, Any]] | None:
        asked = {"action": "rollout.decision"}
        return (await api.call("GET", "/api/v1/audit/records", params=asked))["records"] or None

    (record,) = await eventually(sealed, 60.0)
    assert (record["subject"], record["outcome"]) == ("model-deployment/pole", "obeyed")
    assert record["detail"]["by"] == "alice@example.com"
    assert (await api.call("PUT", path, json=DECISION)) == {"new": False}, "it is sealed by now"
    other = path.replace("0", "f", 1)
    await api.call("PUT", other, 409, json=DECISION | {"model_deployment": "another"})
    await api.call("PUT", path.removesuffix("f"), 422, json=DECISION)
