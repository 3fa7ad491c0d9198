"""People's decisions about rollouts and orders to train go into the audit chain, once each."""

import pytest

from ..conftest import eventually

IDENTITY = "0123456789abcdef" * 2
DECISION = {
    "model_deployment": "pole", "verb": "pause", "revision": "3f9a2c81", "step": 2, "by": "alice@example.com",
    "verified": True, "at": "2026-01-31T12:00:00Z", "outcome": "obeyed", "message": "on hold at 10 %",
}  # fmt: skip
ORDER = {
    "agent": "walker", "job": "walker-3", "by": "alice@example.com", "verified": True, "at": "2026-05-01T12:00:00Z",
    "value": "now at 2026-05-01T11:59:00Z by alice@example.com",
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "whose", "action", "wanted"),
    [
        (
            "models/pole/decisions",
            DECISION,
            "model_deployment",
            "rollout.decision",
            {"subject": "model-deployment/pole", "outcome": "obeyed", "by": "alice@example.com"},
        ),
        (
            "agents/walker/training-orders",
            ORDER,
            "agent",
            "training.ordered",
            {"subject": "agent/walker", "job": "walker-3", "by": "alice@example.com"},
        ),
    ],
)
async def test_it_is_in_the_chain_once_however_often_it_is_told(api, path, body, whose, action, wanted):
    path = f"/api/v1/{path}/{IDENTITY}"
    assert (await api.call("PUT", path, json=body)) == {"new": True}
    assert (await api.call("PUT", path, json=body)) == {"new": False}

    async def sealed() -> list[dict] | None:
        return (await api.call("GET", "/api/v1/audit/records", params={"action": action}))["records"] or None

    (record,) = await eventually(sealed, 60.0)
    fields = record["detail"] | record
    assert {name: fields[name] for name in wanted} == wanted
    assert (await api.call("PUT", path, json=body)) == {"new": False}, "it is sealed by now"
    await api.call("PUT", path.replace("0", "f", 1), 409, json=body | {whose: "another"})
    await api.call("PUT", path.removesuffix("f"), 422, json=body)
