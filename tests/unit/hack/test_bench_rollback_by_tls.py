"""bench-rollback hands its model to a data plane that speaks TLS, and to no other."""

import base64
import json
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from bench.rollback import world
from learnloop_api import names
from learnloop_operator.kube.fenced_client import KubeClient
from testing.certificates import authority, folder

KUBECTL = """
import sys
if "secret" in sys.argv:
    assert "jsonpath={.data.ca\\\\.crt}" in sys.argv, sys.argv
    print(open(sys.argv[1]).read())
else:
    print("a-token")
"""


class Artifacts(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps({"uri": "learnloop://bench-rollback/x"}).encode()
        self.send_response(201)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def data_plane(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Its address, and the bundle as a Secret has it."""
    files = folder(tmp_path / "tls", authority(), names.WORKLOADS_DOMAIN)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(files.certificate, files.key)
    server = HTTPServer(("127.0.0.1", 0), Artifacts)
    server.socket = shown.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    bundle = tmp_path / "bundle"
    bundle.write_text(base64.b64encode(files.bundle.read_bytes()).decode())
    yield f"http://127.0.0.1:{server.server_address[1]}", bundle
    server.shutdown()


def kubectl(tmp_path: Path, bundle: Path) -> list[str]:
    program = tmp_path / "kubectl.py"
    program.write_text(KUBECTL)
    return [sys.executable, str(program), str(bundle)]


async def test_its_address_is_verified_by_the_name_that_every_part_has(
    data_plane: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, bundle = data_plane

    async def address(*_: Any) -> str:
        return url

    monkeypatch.setattr(world, "_address", address)
    kube = cast(KubeClient, None)
    entered = await world.enter(kubectl(tmp_path, bundle), kube, b"a model", tls=True)
    assert entered.model["uri"] == "learnloop://bench-rollback/x"
    stranger = folder(tmp_path / "stranger", authority("stranger"))
    bundle.write_text(base64.b64encode(stranger.bundle.read_bytes()).decode())
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await world.enter(kubectl(tmp_path, bundle), kube, b"a model", tls=True)
