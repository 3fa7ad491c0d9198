"""A Loki in one process, with files, and the chart's loki.yaml merged into what it needs to start."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testing.logs.programs import loki_program
from testing.servers.child_process import running
from testing.servers.ports import held_port

SINCE = "720h"
"""The longest span that Loki permits in one query."""
START_SECONDS = 300.0
"""Loki itself waits for a quarter of a minute before it is ready."""


@dataclass(frozen=True)
class Line:
    """One line that was found: its labels, structured metadata among them, and its text."""

    labels: Mapping[str, str]
    text: str


class Loki:
    """Asks one at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def lines(self, query: str, **more: str) -> list[Line]:
        """Lines that a LogQL query finds in the last 30 days; `more`: parameters of `query_range`."""
        parameters = {"query": query, "since": SINCE, "limit": "5000", **more}
        body = json.loads(self.get(f"/loki/api/v1/query_range?{urllib.parse.urlencode(parameters)}"))
        return [Line(stream["stream"], text) for stream in body["data"]["result"] for _, text in stream["values"]]

    def label_names(self) -> set[str]:
        """The labels of streams."""
        return set(json.loads(self.get(f"/loki/api/v1/labels?since={SINCE}")).get("data") or ())

    def configuration(self) -> dict[str, Any]:
        """Its configuration, defaults included."""
        lines: dict[str, Any] = yaml.safe_load(self.get("/config"))
        return lines

    def get(self, path: str) -> str:
        """Raises OSError, with what Loki says of it."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            raise OSError(f"{path}: {error}: {error.read().decode()[:500]}") from error


@contextmanager
def loki(values: Mapping[str, Any], folder: Path) -> Iterator[Loki]:
    """Yields it when it takes lines. `values`: what the chart says is to be merged into Loki's configuration.

    Raises:
        AssertionError: it does not start, with the end of its log.
    """
    with held_port() as http, held_port() as grpc:
        needed = {
            "auth_enabled": False,
            "analytics": {"reporting_enabled": False},
            "server": {
                "http_listen_address": "127.0.0.1",
                "http_listen_port": http,
                "grpc_listen_address": "127.0.0.1",
                "grpc_listen_port": grpc,
            },
            "common": {
                "instance_addr": "127.0.0.1",
                "path_prefix": str(folder / "loki"),
                "replication_factor": 1,
                "ring": {"kvstore": {"store": "inmemory"}},
                "storage": {
                    "filesystem": {name: str(folder / name) for name in ("chunks_directory", "rules_directory")}
                },
            },
            "frontend": {"address": "127.0.0.1"},
            "schema_config": {
                "configs": [
                    {
                        "from": "2024-01-01",
                        "store": "tsdb",
                        "object_store": "filesystem",
                        "schema": "v13",
                        "index": {"prefix": "index_", "period": "24h"},
                    }
                ]
            },
        }
        file, log = folder / "loki.yaml", folder / "loki.log"
        file.write_text(yaml.safe_dump({**needed, **values}))
        with running([str(loki_program()), f"-config.file={file}"], log):
            server = Loki(f"http://127.0.0.1:{http}")
            until_true(lambda: _ended(log) or _ready(server), START_SECONDS, lambda: log.read_text()[-3000:])
            assert not _ended(log), log.read_text()[-3000:]
            yield server


def until_true(look: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
    """Returns when `look` says yes.

    Raises:
        AssertionError: it does not; says what `why` says then.
    """
    until = time.monotonic() + seconds
    while not look():
        if time.monotonic() > until:
            raise AssertionError(why())
        time.sleep(0.2)


def _ended(log: Path) -> bool:
    """It says so when its configuration will not do."""
    return "error running loki" in log.read_text()


def _ready(server: Loki) -> bool:
    try:
        return server.get("/ready").strip() == "ready"
    except OSError:
        return False
