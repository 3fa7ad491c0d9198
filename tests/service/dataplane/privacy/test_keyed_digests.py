"""What the database remembers of erased episodes and of requests cannot be found by trying names."""

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from learnloop_dataplane.privacy import keyed_digests, redaction

from ..conftest import running, settings, superuser, trajectory

KEY = "sixteen characters or more"


@pytest.fixture(autouse=True)
def no_key_afterwards() -> Iterator[None]:
    yield
    redaction.use_keys(None)
    keyed_digests.use_keys(None)


async def kept(dsn: str) -> set[str]:
    """All digests that a reader of the database has."""
    async with superuser(dsn) as connection:
        rows = await connection.fetch(
            "SELECT digest FROM erased_trajectories UNION SELECT digest FROM idempotency_keys"
        )
    return {row["digest"] for row in rows}


def guesses(person: str) -> set[str]:
    """What somebody computes who tries a name."""
    asked = b'["POST", "/api/v1/erasure", []]\n' + b'{"user_id":"%s"}' % person.encode()
    return {sha256(asked).hexdigest(), sha256(f"team-a/{person}-1".encode()).hexdigest()}


async def erased(api: Any, person: str) -> None:
    body = trajectory(f"{person}-1", metadata={"user_id": person})
    await api.call("POST", "/api/v1/trajectories", 202, json=body)
    content = b'{"user_id":"%s"}' % person.encode()
    headers = {"idempotency-key": f"of-{len(person)}", "content-type": "application/json"}
    await api.call("POST", "/api/v1/erasure", content=content, headers=headers)


async def refused(api: Any, person: str) -> bool:
    """Whether the episode stays away, though it claims to be another's."""
    body = trajectory(f"{person}-1")
    await api.client.post("/api/v1/trajectories", json=body, headers={"x-learnloop-namespace": "team-a"})
    async with api.db.tenant("team-a") as connection:
        asked = "SELECT count(*) FROM trajectories WHERE trajectory_id = $1"
        return bool(await connection.fetchval(asked, f"{person}-1") == 0)


async def test_with_the_installations_key_no_digest_is_found_by_trying_names(
    migrated: Callable[[str], str], tmp_path: Path
) -> None:
    dsn = migrated(f"digests_{os.getpid()}")
    async with running(**settings(dsn, tmp_path)) as api:
        await erased(api, "anna")
    plain = await kept(dsn)
    assert guesses("anna") <= plain, "without a key they are found"
    async with running(**settings(dsn, tmp_path, pseudonym_key=KEY)) as api:
        await erased(api, "benedict")
        assert await refused(api, "benedict")
        assert await refused(api, "anna"), "what was remembered before there was a key still holds"
    keyed = await kept(dsn) - plain
    assert len(keyed) == 2
    assert not keyed & guesses("benedict")
