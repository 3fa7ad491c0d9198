"""POST /api/v1/rewards/calculate with hostile bodies: refused immediately, with the field and the fix."""

import json
import time

import pytest

from ..conftest import Api

ROUTE = "/api/v1/rewards/calculate"
SECONDS = 5.0
STEP = {"action": 1, "reward": 0.0, "observation": [0.0, 1.0]}


def body(**result) -> bytes:
    return json.dumps({"result": result}).encode()


def deep(levels: int) -> bytes:
    return b'{"result": {"metadata": {"x": ' + b"[" * levels + b"]" * levels + b"}}}"


REFUSED = {
    "10 MB of output": (413, "body", body(output="x" * 10_000_000)),
    "10 MB of metadata": (413, "body", body(metadata={"x": ["y" * 100] * 95_000})),
    "deep metadata": (422, "body", deep(100_000)),
    "10^5 steps": (422, "body", body(steps=[STEP] * 100_000)),
    "10^5 agents": (422, "result.agents", body(agents=[f"a{n}" for n in range(100_000)])),
    "10^5 values": (422, "result.values", body(values={f"v{n}": 1 for n in range(100_000)})),
    "10^5 keys of metadata": (422, "result.metadata", body(metadata={f"v{n}": 1 for n in range(100_000)})),
    "a number of 10^6 digits": (422, "body", b'{"result": {"output": ' + b"9" * 1_000_000 + b"}}"),
    "an infinite return": (422, "result.episode_return", b'{"result": {"episode_return": 1e999}}'),
    "half a letter": (422, "body", b'{"result": {"output": "\\ud800"}}'),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_nobody_can_calculate_is_refused_at_once_with_field_and_fix(api: Api, what: str) -> None:
    status, field, content = REFUSED[what]
    began = time.monotonic()
    answer = await api.client.post(ROUTE, content=content, headers={"x-learnloop-namespace": "team-a"})
    assert time.monotonic() - began < SECONDS
    error = answer.json()["error"]
    assert (answer.status_code, error["field"]) == (status, field)
    assert "send it again" in error["message"] or "make it smaller" in error["message"]
    assert len(answer.content) < 2000
