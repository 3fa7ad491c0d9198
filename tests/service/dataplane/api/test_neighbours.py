"""One tenant of a process and the others: its requests, and its large bodies, leave room for theirs."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ..conftest import NOW, running, settings, trajectory

WORDS = "write to jane.doe@example.org or call +49 170 1234567, card 4111 1111 1111 1111, from 10.0.0.1; " * 1000


def _episode() -> dict:
    return trajectory("large", steps=[{"observation": WORDS[:60_000], "action": 1, "reward": 1.0} for _ in range(40)])


def _memory() -> dict:
    return {"agent_id": "walker", "memory_type": "semantic", "content": {"text": WORDS, "rest": [WORDS] * 25}}


def _preference() -> dict:
    messages = [{"role": "user", "content": WORDS[:60_000]}] * 30
    answers = {"chosen": {"text": "yes"}, "rejected": {"text": "no"}}
    return {"preference_id": "p", "agent": "walker", "messages": messages, "at": NOW.isoformat(), **answers}


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/api/v1/trajectories", 202, _episode),
        ("/api/v1/memory/store", 201, _memory),
        ("/api/v1/memory/store/batch", 201, lambda: {"memories": [_memory()]}),
        ("/api/v1/memory/retrieve", 200, lambda: {"agent_id": "walker", "context": {"text": [WORDS] * 25}}),
        ("/api/v1/preferences", 201, _preference),
    ],
)
async def test_a_large_body_of_one_tenant_does_not_hold_up_the_others(api, path, status, body):
    content = json.dumps(body()).encode()
    await api.call("GET", "/api/v1/quotas", namespace="neighbour")  # its connection is open
    large = asyncio.create_task(
        api.call("POST", path, status, content=content, headers={"content-type": "application/json"})
    )
    begun, longest = time.monotonic(), 0.0
    while not large.done():
        started = time.monotonic()
        await api.call("GET", "/api/v1/quotas", namespace="neighbour")
        longest = max(longest, time.monotonic() - started)
    await large
    assert longest < (time.monotonic() - begun) / 2, "the neighbour waited until the body was read and redacted"


async def test_requests_are_limited_by_namespace_and_not_by_address(dsn: str, tmp_path: Path) -> None:
    """All come from one address, as behind a gateway or one NAT."""
    end = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await end.wait()
        yield b"}"

    async with running(**settings(dsn, tmp_path, requests_per_namespace=2)) as api:
        held = [asyncio.create_task(api.call("POST", "/api/v1/trajectories", 422, content=slow())) for _ in range(2)]
        await asyncio.sleep(0.2)
        refused = await api.call("POST", "/api/v1/trajectories", 429, json=trajectory("one-too-many"))
        assert refused["error"]["message"] == (
            "namespace team-a has 2 requests under way, the most it may have "
            "(dataPlane.requestsPerNamespace of the chart); send fewer at a time"
        )
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("neighbour"), namespace="team-b")
        await api.call("GET", "/healthz")
        end.set()
        await asyncio.gather(*held)
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("later"))
        for _ in range(4):
            await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("later"))
