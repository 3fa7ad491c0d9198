"""Gateways as processes of their own, which can be killed, and a ModelDeployment's routing table for them."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from testing.servers.policy_servers import table

BASE = "b" * 64
PATIENCE = 120.0


class GatewayProcess:
    """One arm's gateway.

    Args:
        folder: for its turns and its log; those of one arm find what a killed one left.
        base: folder of the base model.
        port: it listens on.
        server: LEARNLOOP_UPSTREAM, as an object.
        tls: the authority that its clients trust, where it has a certificate; None: it speaks plain HTTP.
        ahead: seconds that its clock is ahead of ours.
    """

    def __init__(
        self,
        folder: Path,
        base: Path,
        port: int,
        revision: str,
        server: dict[str, Any],
        *,
        routing: Path,
        data_url: str = "",
        fallback: dict[str, Any] | None = None,
        tls: ssl.SSLContext | None = None,
        ahead: float = 0.0,
        **env: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
        self._verify: ssl.SSLContext | bool = tls or True
        model = {"base": {"uri": "file:///base", "sha256": BASE}}
        self._env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LEARNLOOP_MODEL_DEPLOYMENT": "cart",
            "LEARNLOOP_REVISION": revision,
            "LEARNLOOP_MODEL_URI": f"base://{BASE}",
            "LEARNLOOP_ROUTING_FILE": str(routing),
            "LEARNLOOP_EPISODE_KEY_FILE": str(routing.with_name("episode.key")),
            "LEARNLOOP_NAMESPACE": "default",
            "LEARNLOOP_TERMINATION_LOG": str(folder / "said"),
            "LEARNLOOP_HOST": "127.0.0.1",
            "LEARNLOOP_PORT": str(port),
            "LEARNLOOP_DRAIN_SECONDS": "0",
            "LEARNLOOP_AGENT": "cart",
            "LEARNLOOP_LANGUAGE_MODEL": json.dumps(model),
            "LEARNLOOP_TOKENISER_FOLDER": str(base),
            "LEARNLOOP_UPSTREAM": json.dumps(server),
            "LEARNLOOP_FALLBACK": json.dumps(fallback) if fallback else "",
            "LEARNLOOP_TURNS_FOLDER": str(folder / "turns"),
            "LEARNLOOP_DATA_URL": data_url,
            **env,
        }
        self._log = folder / "log"
        elsewhere = ["testing.language.elsewhere", str(ahead)] if ahead else []
        self._command = [sys.executable, "-m", *elsewhere, "learnloop_gateway"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "GatewayProcess":
        """Start it; returns when it is ready."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._env, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            assert self.process.poll() is None, self.log
            try:
                if httpx.get(f"{self.url}/readyz", timeout=2.0, verify=self._verify).status_code == 200:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"the gateway is not ready after {PATIENCE:g} s: {self.log}")

    @property
    def log(self) -> str:
        """Its output so far."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def write_routing(folder: Path, *arms: tuple[str, str, int, str], generation: int = 1) -> Path:
    """The routing table, and next to it the key that the arms share."""
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "episode.key"
    if not key.exists():
        key.write_bytes(b"k" * 64)
    fresh = folder / "routing.new"
    fresh.write_text(table(*arms, generation=generation))
    return fresh.replace(folder / "routing.json")
