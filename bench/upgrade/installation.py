"""Data plane and policy servers of any version behind Services, on one PostgreSQL and one NATS."""

import http.client
import json
import os
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.upgrade.service import Service
from bench.upgrade.versions import Version
from learnloop_dataplane.successive_logins import with_login
from testing.servers.nats_server import Nats
from testing.servers.policy_servers import table, write_policy
from testing.servers.ports import held_port
from testing.servers.postgres_server import own_postgres
from testing.servers.tenants_nats import LOGIN
from testing.servers.token_issuer import ISSUER, Cluster

NAMESPACE, DEPLOYMENT, REVISION = "red", "cart", "aaaaaaaa"
START_SECONDS = 300.0
ROUTING_LAG_SECONDS = 1.0
"""From the SIGTERM of a pod until nobody's node leads new connections to it."""
END_SECONDS = 60.0


class Replica:
    """A process behind a Service."""

    def __init__(self, version: Version, module: str, service: Service, port: int, log: Path, **settings: str) -> None:
        self.version, self._service, self._port, self._log = version, service, port, log
        environment = version.environment(**settings, HOST="127.0.0.1", PORT=str(port), LOG_LEVEL="WARNING")
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                [version.python, "-m", module], env=environment, stdout=subprocess.DEVNULL, stderr=said
            )

    def serve(self) -> None:
        """Returns when it is ready and the Service leads to it."""
        deadline = time.monotonic() + START_SECONDS
        while not _is_ready(self._port):
            assert self._process.poll() is None, f"the replica of {self.version.name} ended: {self.said()}"
            assert time.monotonic() < deadline, f"the replica of {self.version.name} never got ready: {self.said()}"
            time.sleep(0.1)
        self._service.add(self._port)

    @property
    def connections(self) -> int:
        """That the Service has led here."""
        return self._service.connections[self._port]

    def end(self) -> None:
        """As Kubernetes does: told to end, and the nodes learn of it while it ends."""
        self._process.terminate()
        time.sleep(ROUTING_LAG_SECONDS)
        self._service.remove(self._port)
        code = self._process.wait(END_SECONDS)
        assert code in (0, -15), f"the replica of {self.version.name} ended with {code}: {self.said()}"

    def kill(self) -> None:
        """Where the rehearsal itself ends."""
        self._service.remove(self._port)
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2000:]


class Installation:
    """Everything of one release."""

    def __init__(self, folder: Path, first: Version, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self._cluster = Cluster()
        self._server = stack.enter_context(own_postgres())
        self._dsn = str(self._server.get_uri())
        self._jwks = stack.enter_context(self._cluster.served())
        self.data, self.policy = stack.enter_context(Service()), stack.enter_context(Service())
        self.token = folder / "token"
        self.token.write_text(self._cluster.token(NAMESPACE, exp=int(time.time()) + 36_000))
        (folder / "artifacts").mkdir()
        self._nats = Nats(folder / "nats", stack.enter_context(held_port()), more=self._accounts(first)).start()
        stack.callback(self._nats.kill)
        self.nats_url = self._nats.url
        self.weights = write_policy(folder / "policy.onnx")
        (folder / "episode-key").write_text("0123456789abcdef" * 4)

    @property
    def dsn(self) -> str:
        """Of the administrator."""
        return self._dsn

    def prepare(self, version: Version) -> float:
        """What runs before a replica: brings the database to the version's schema; returns the seconds it took."""
        began = time.monotonic()
        verb = "prepare" if version.has_ordinary_login else "migrate"
        environment = version.environment(**self._data_settings(version), ADMIN_DSN=self._dsn, LOG_LEVEL="WARNING")
        done = subprocess.run(
            [version.python, "-m", "learnloop_dataplane", verb], env=environment, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return time.monotonic() - began

    def replace_nats(self, version: Version) -> None:
        """The server by another version's configuration, with the streams as they are."""
        self._nats.replace(self._accounts(version))

    def start_data(self, version: Version) -> Replica:
        """One more data plane; not in the Service yet."""
        return self._replica(version, "learnloop_dataplane", self.data, **self._data_settings(version))

    def start_policy(self, version: Version) -> Replica:
        """One more policy server; the same."""
        self._write_routing()
        return self._replica(
            version, "learnloop_serving", self.policy,
            MODEL_DEPLOYMENT=DEPLOYMENT, REVISION=REVISION, NAMESPACE=NAMESPACE,
            MODEL_URI=f"learnloop://{NAMESPACE}/{self.weights}", MODEL_SHA256=self.weights,
            ROUTING_FILE=str(self.folder / "routing.json"), EPISODE_KEY_FILE=str(self.folder / "episode-key"),
            DATA_URL=self.data.url, TOKEN_FILE=str(self.token), TERMINATION_LOG=str(self.folder / "termination"),
        )  # fmt: skip

    def request(self, method: str, path: str, body: bytes, **headers: str) -> Any:
        """One request of the namespace's own to the data plane."""
        asked = urllib.request.Request(f"{self.data.url}{path}", body, method=method)
        for name, value in {"authorization": f"Bearer {self.token.read_text()}", **headers}.items():
            asked.add_header(name.replace("_", "-"), value)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    def _replica(self, version: Version, module: str, service: Service, **settings: str) -> Replica:
        port = self._stack.enter_context(held_port())
        replica = Replica(version, module, service, port, self.folder / f"{module}-{port}.log", **settings)
        self._stack.callback(replica.kill)
        return replica

    def _data_settings(self, version: Version) -> dict[str, str]:
        login = {name.upper(): value for name, value in LOGIN.items()}
        dsn = with_login(self._dsn, "learnloop", "known") if version.has_ordinary_login else self._dsn
        return login | {
            "DSN": dsn, "NATS_URL": self.nats_url, "ARTIFACTS": f"file://{self.folder}/artifacts", "ISSUER": ISSUER,
            "JWKS_URL": self._jwks, "JWKS_TOKEN_FILE": str(self.token), "ROLES": "off", "RUN_WRITERS": "namespace",
        }  # fmt: skip

    def _write_routing(self) -> None:
        (self.folder / "routing.json").write_text(table((REVISION, "stable", 100, self.policy.url)))

    def _accounts(self, version: Version) -> str:
        """NATS' configuration as the version's own chart has it."""
        folder = self.folder / f"accounts-{version.name}"
        folder.mkdir(exist_ok=True)
        program = (
            "import pathlib, sys; from testing.servers.tenants_nats import accounts;"
            "sys.stdout.write(accounts(pathlib.Path(sys.argv[1])))"
        )
        command = [version.python, "-c", program, str(folder)]
        environment = version.environment() | {"PATH": os.environ["PATH"]}
        done = subprocess.run(command, env=environment, cwd=version.root, capture_output=True, text=True, check=True)
        return done.stdout


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False
