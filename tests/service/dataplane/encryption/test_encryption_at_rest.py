"""Sealed data reads as before with the keys, and as nothing with the disk or the database alone."""

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from learnloop_common.sealed_bytes import MAGIC
from learnloop_dataplane.errors import Damaged
from learnloop_dataplane.registry.artifacts import artifact_key

from ..conftest import Api, eventually, running, settings, superuser, trajectory

OLD, NEW = (f"{name} {base64.b64encode(bytes([number]) * 32).decode()}" for name, number in (("k1", 1), ("k2", 2)))
TEXT = "my number is in the blue folder"
ANNA, BEN = "anna", "ben"
CHECKPOINT = "/api/v1/training/runs/job/checkpoint"
POLICY = {
    "components": [
        {"name": "return", "type": "environment", "weight": 0.5},
        {"name": "smooth", "type": "smoothness", "weight": 0.5},
    ],
    "credit": {"method": "discounted", "discount": 0.5},
    "normalisation": {"method": "none"},
}


@pytest.fixture
def dsn(migrated: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """Each test looks through a database of its own."""
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    return migrated(f"sealed_{name}_{os.getpid()}")


@pytest.fixture
async def sealing(dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(**settings(dsn, tmp_path / "blobs", encryption_keys=OLD)) as api:
        yield api


async def upload(api: Api, body: bytes, path: str = "/api/v1/artifacts") -> str:
    sha256 = hashlib.sha256(body).hexdigest()
    headers = {"x-learnloop-sha256": sha256, "x-learnloop-step": "1", "x-learnloop-namespace": "team-a"}
    answer = await api.client.put(path, content=body, headers=headers)
    assert answer.status_code < 300, answer.text
    return sha256


async def fetch(api: Api, path: str):
    return await api.client.get(path, headers={"x-learnloop-namespace": "team-a"})


def spoken(identity: str, user: str | None = None, text: str = TEXT, **changes) -> dict:
    """An episode of text that somebody had with the agent `helper`."""
    step = {"observation": text, "action": f"noted: {text}", "log_prob": -0.7, "reward": 1.0}
    last = {"last_observation": f"goodbye, {text}", "steps": [step, step]}
    return trajectory(identity, "helper", metadata={"user_id": user} if user else {}, **last, **changes)


async def lived(api: Api, *episodes: dict) -> None:
    """Stored, rewarded and remembered."""
    await api.call("PUT", "/api/v1/rewards/policies/p/revisions/r1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/helper", json={"reward_policy": "p", "reward_policy_revision": "r1"})
    for body in episodes:
        await api.call("POST", "/api/v1/trajectories", 202, json=body)

    async def done() -> bool:
        async with api.db.tenant("team-a") as connection:
            query = "SELECT count(*) FROM trajectories WHERE reward IS NULL OR NOT remembered"
            return not await connection.fetchval(query)

    await eventually(done)


async def read(api: Api, identity: str) -> dict:
    """By every way on which steps are read."""
    paths = {
        "dataset": "/api/v1/experience/trajectories?agent=helper",
        "observations": "/api/v1/experience/observations?agent=helper&limit=100",
        "credits": f"/api/v1/rewards/credits/{identity}",
        "signals": "/api/v1/rewards/policies/p/revisions/r1/signals",
    }
    answers = {name: await fetch(api, path) for name, path in paths.items()}
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(paths, 200)
    bodies = {name: answer.json() for name, answer in answers.items()}
    tried = POLICY | {"components": [{"name": "smooth", "type": "smoothness", "weight": 1.0}]}
    return bodies | {"dry run": await api.call("POST", "/api/v1/rewards/dry-run", json={"policy": tried})}


async def stored(dsn: str, *tables: str) -> str:
    async with superuser(dsn) as connection:
        return "\n".join([r["t"] for name in tables for r in await connection.fetch(f"SELECT t::text FROM {name} t")])


async def test_blobs_are_envelopes_on_disk_and_themselves_for_who_asks(sealing: Api, tmp_path: Path) -> None:
    model, checkpoint = os.urandom(2**20 + 5) + TEXT.encode(), TEXT.encode()
    sha256 = await upload(sealing, model)
    await upload(sealing, checkpoint, CHECKPOINT)
    assert (await fetch(sealing, f"/api/v1/artifacts/{sha256}")).content == model
    assert (await fetch(sealing, CHECKPOINT)).content == checkpoint
    blobs = [path for path in (tmp_path / "blobs" / "team-a").rglob("*") if path.is_file()]
    assert [path.read_bytes()[:4] for path in blobs] == [MAGIC, MAGIC]
    assert not any(TEXT.encode() in path.read_bytes() for path in (tmp_path / "blobs").rglob("*") if path.is_file())


async def test_what_lay_there_in_the_open_is_still_read_and_a_changed_blob_is_not(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path)) as open_to_all:
        before = await upload(open_to_all, b"from before")
        await lived(open_to_all, spoken("plain"))
    async with running(**settings(dsn, tmp_path, encryption_keys=OLD)) as api:
        assert (await fetch(api, f"/api/v1/artifacts/{before}")).content == b"from before"
        await lived(api, spoken("sealed"))
        trajectories = (await read(api, "plain"))["dataset"]["trajectories"]
        assert [item["trajectory_id"] for item in trajectories] == ["sealed", "plain"]
        assert trajectories[0]["steps"] == trajectories[1]["steps"]
        after = await upload(api, b"from after")
        blob = next(path for path in (tmp_path / "team-a").rglob(after))
        blob.write_bytes(blob.read_bytes()[:-1] + b"\0")
        chunks = await api.plane.shared.blobs.open(artifact_key("team-a", after))
        assert chunks is not None
        with pytest.raises(Damaged, match="restore it from a backup"):
            _ = [chunk async for chunk in chunks]


async def test_episodes_read_the_same_whether_they_are_sealed_or_not(dsn, tmp_path, migrated, sealing):
    episodes = [spoken(f"e-{number}", (ANNA, BEN, None)[number % 3]) for number in range(6)]
    moves = [{"observation": [0.5, n], "action": [n % 2], "log_prob": -0.7, "reward": 1.0} for n in range(5)]
    episodes += [trajectory("numbers", "helper", steps=moves, last_observation=[0.5, 6])]
    plain = migrated(f"unsealed_{os.getpid()}")
    async with running(**settings(plain, tmp_path / "plain")) as open_to_all:
        await lived(open_to_all, *episodes)
        expected = await read(open_to_all, "e-3")
    await lived(sealing, *episodes)
    parts = await read(sealing, "e-3")
    for answer in (expected, parts):
        answer["dataset"] = [{k: v for k, v in e.items() if k != "seq"} for e in answer["dataset"]["trajectories"]]
    assert parts == expected
    assert parts["dataset"][1]["last_observation"] == f"goodbye, {TEXT}"
    assert TEXT in await stored(plain, "training_transitions")
    assert TEXT not in await stored(dsn, "training_transitions")
    rows = await stored(dsn, "agent_memories")
    assert TEXT in rows, "what an agent remembers is searched by its words, so it is not sealed"
    async with sealing.db.tenant("team-a") as connection:
        assert await connection.fetchval("SELECT count(*) FROM data_keys") == 1


async def test_without_its_keys_a_process_says_which_one_is_missing(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, encryption_keys=OLD)) as api:
        sha256 = await upload(api, b"a model")
        await lived(api, spoken("e-1"))
    async with running(**settings(dsn, tmp_path, encryption_keys=NEW)) as api:
        for path in (f"/api/v1/artifacts/{sha256}", "/api/v1/experience/trajectories?agent=helper"):
            answer = await fetch(api, path)
            assert (answer.status_code, "has no key k1" in answer.text) == (503, True), answer.text
    async with running(**settings(dsn, tmp_path)) as api:
        answer = await fetch(api, "/api/v1/experience/trajectories?agent=helper")
        assert (answer.status_code, "LEARNLOOP_ENCRYPTION_KEYS is not set" in answer.text) == (503, True)


async def test_a_new_key_wraps_everything_anew_and_then_the_old_one_may_go(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, encryption_keys=OLD)) as api:
        sha256 = await upload(api, b"a model")
        await lived(api, spoken("e-1", ANNA))
    async with running(**settings(dsn, tmp_path, encryption_keys=f"{NEW}\n{OLD}")) as both:
        # Under load: what is written while keys are wrapped again is read afterwards.
        await asyncio.gather(*(both.call("POST", "/api/v1/trajectories", 202, json=spoken(f"l-{n}")) for n in range(8)))

        async def rewrapped() -> bool:
            async with both.db.tenant("team-a") as connection:
                return not await connection.fetchval("SELECT count(*) FROM data_keys WHERE wrapping_key <> 'k2'")

        await eventually(rewrapped)
    async with running(**settings(dsn, tmp_path, encryption_keys=NEW)) as api:
        assert (await fetch(api, f"/api/v1/artifacts/{sha256}")).content == b"a model"
        trajectories = (await read(api, "e-1"))["dataset"]["trajectories"]
        assert {item["trajectory_id"] for item in trajectories} == {"e-1", *(f"l-{n}" for n in range(8))}
