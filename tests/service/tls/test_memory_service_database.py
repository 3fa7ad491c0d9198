"""A MemoryService's own PostgreSQL: run by what the operator's manifests say, with its namespace's certificate.

Only paths, port and address are this machine's: the command, the image's own entry point, the rules of who may come,
and the name that the memory service verifies are those of the cluster.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import psycopg
import pytest

from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_operator.memory_services.decide_service import decide
from learnloop_operator.memory_services.service_snapshot import MemoryServiceSnapshot, budgets_json
from testing.certificates import Folder, Pair, authority, folder
from testing.servers.ports import held_port
from testing.servers.tls_parts import ROOT, programs_with_tls, wait_for, wait_until_ready

PROGRAMS = programs_with_tls()
pytestmark = pytest.mark.skipif(PROGRAMS is None, reason="no PostgreSQL with OpenSSL in /usr/lib/postgresql")
PASSWORD = "correct-horse"


def manifests() -> dict:
    """The operator's manifests of MemoryService `mem` in namespace `red`."""
    metadata = {"name": "mem", "namespace": "red", "uid": "u", "generation": 1}
    snapshot = MemoryServiceSnapshot(
        now=datetime.now(UTC),
        object={"apiVersion": "learnloop.dev/v1alpha1", "kind": "MemoryService", "metadata": metadata, "status": {}},
        spec=MemoryServiceSpec.model_validate({"storage": {"size": "1Gi"}}),
        images=("memory:1", "postgres:17"),
        pull_policy="IfNotPresent",
        budgets=budgets_json("red", {}),
        tls=True,
        fresh_password=PASSWORD,
    )
    return {(item["kind"], item["metadata"]["name"]): item for item in decide(snapshot).apply}


@dataclass(frozen=True)
class Installation:
    """Paths of this machine in place of the pod's, and who runs what is in it."""

    root: Path
    authority: Pair
    own: Folder
    """The folder in both pods of the namespace's certificate."""
    port: int
    user: tuple[int, int] | None

    def here(self, text: str) -> str:
        """The same with this machine's paths."""
        for there, place in (
            ("/run/tls", self.own.path),
            ("/etc/learnloop", self.root / "config"),
            ("svc:5432", f"svc:{self.port}"),
        ):
            text = text.replace(there, str(place))
        return text

    def renew(self) -> None:
        """Another certificate, as its Secret's volume gets it."""
        self.own.show(self.authority, "*.red.svc", "*.red.svc.cluster.local")


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """The namespace's certificate, and folders."""
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="learnloop-tls-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        root.chmod(0o755)
        user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to be root
            nobody = pwd.getpwnam("nobody")
            user = (nobody.pw_uid, nobody.pw_gid)
        for place in ("own", "config", "data", "credentials", "run"):
            (root / place).mkdir()
            if user:
                os.chown(root / place, *user)
        ours = authority("ours")
        made = Installation(root, ours, Folder(root / "own", user).trust(ours), stack.enter_context(held_port()), user)
        made.renew()
        yield made


@pytest.fixture(scope="module")
def running(installation: Installation) -> Iterator[Installation]:
    """PostgreSQL as its pod runs it."""
    made = manifests()
    pod = made["StatefulSet", "mem-postgres"]["spec"]["template"]["spec"]
    for name, text in made["ConfigMap", "mem-postgres"]["data"].items():
        (installation.root / "config" / name).write_text(text)
    (installation.root / "credentials" / "postgres-password").write_text(PASSWORD)
    programs = installation.root / "bin"
    programs.mkdir()
    shutil.copy(ROOT / "hack/images/postgres/entrypoint", programs)
    container = pod["containers"][0]
    environment = {item["name"]: item["value"] for item in container["env"]} | {
        "POSTGRES_PASSWORD_FILE": str(installation.root / "credentials" / "postgres-password"),
        "PGDATA": str(installation.root / "data" / "pgdata"),
        "PATH": f"{programs}:{PROGRAMS}:{os.environ['PATH']}",
    }
    command = [str(programs / "entrypoint"), *(installation.here(word) for word in container["args"])]
    command += ["-c", f"port={installation.port}", "-c", f"unix_socket_directories={installation.root / 'run'}"]
    options = {}
    if installation.user:
        options = dict(zip(("user", "group"), installation.user, strict=True))
    process = subprocess.Popen(command, env=environment, cwd=installation.root, stderr=subprocess.DEVNULL, **options)
    try:
        assert PROGRAMS
        wait_for(installation.port)
        wait_until_ready(PROGRAMS, installation.port)
        yield installation
    finally:
        process.terminate()
        assert process.wait(60) is not None


@pytest.fixture
def dsn(running: Installation, monkeypatch: pytest.MonkeyPatch) -> str:
    """The memory service's own address of its database, whose name leads here."""
    made = manifests()["Deployment", "mem-memory"]["spec"]["template"]["spec"]["containers"][0]
    (address,) = (item["value"] for item in made["env"] if item["name"] == "LEARNLOOP_DSN")
    look_up = socket.getaddrinfo

    def here(host, *rest, **options):
        return look_up("127.0.0.1" if host == "mem-postgres.red.svc" else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    return running.here(address)


async def test_both_drivers_reach_it_encrypted_by_the_address_that_the_memory_service_has(dsn: str) -> None:
    query = "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    connection = await asyncpg.connect(dsn, password=PASSWORD)
    try:
        encrypted, version = await connection.fetchrow(query)
    finally:
        await connection.close()
    assert encrypted
    assert version in ("TLSv1.2", "TLSv1.3")
    with psycopg.connect(dsn, hostaddr="127.0.0.1", password=PASSWORD) as other:
        assert other.execute(query).fetchone() == (True, version)


async def test_another_authority_is_refused_by_both_drivers(dsn: str, running: Installation) -> None:
    stranger = folder(running.root / "stranger", authority("stranger"))
    elsewhere = dsn.replace(str(running.own.bundle), str(stranger.bundle))
    assert elsewhere != dsn
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        await asyncpg.connect(elsewhere, password=PASSWORD)
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        psycopg.connect(elsewhere, hostaddr="127.0.0.1", password=PASSWORD)


async def test_a_server_under_another_name_is_refused(dsn: str) -> None:
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        await asyncpg.connect(dsn.replace("mem-postgres.red.svc", "localhost"), password=PASSWORD)


async def test_nobody_comes_without_tls_or_without_the_password(dsn: str) -> None:
    plain = dsn.partition("?")[0] + "?sslmode=disable"
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no encryption"):
        await asyncpg.connect(plain, password=PASSWORD)
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(dsn, password="wrong")


def test_the_kubelet_restarts_it_once_its_certificate_was_renewed(running: Installation) -> None:
    container = manifests()["StatefulSet", "mem-postgres"]["spec"]["template"]["spec"]["containers"][0]
    probe = [running.here(word) for word in container["livenessProbe"]["exec"]["command"]]
    path = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "PGDATA": str(running.root / "data" / "pgdata")}
    path["PGPORT"] = str(running.port)
    assert subprocess.run(probe, env=path, check=False).returncode == 0
    running.renew()
    assert subprocess.run(probe, env=path, check=False).returncode != 0
