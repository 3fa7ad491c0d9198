"""A collector that runs a configuration of the chart, with the node's folder of logs elsewhere."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from testing.logs.programs import collector_program
from testing.servers.child_process import running
from testing.servers.ports import held_port

NODE_LOGS = "/var/log/pods/"


@contextmanager
def collecting(configuration: Mapping[str, Any], node_logs: Path, folder: Path) -> Iterator[int]:
    """Yields its pid while it reads the logs below `node_logs`, which stands for /var/log/pods of a node. What it has
    read stands in `folder`, which is its node's /var/lib/otelcol."""
    [receiver] = configuration["receivers"]
    settings = configuration["receivers"][receiver]
    assert all(pattern.startswith(NODE_LOGS) for pattern in settings["include"])
    there = [f"{node_logs}/{pattern.removeprefix(NODE_LOGS)}" for pattern in settings["include"]]
    quiet = {"telemetry": {"metrics": {"level": "none"}}}
    [(place, storage)] = configuration["extensions"].items()
    overrides = {
        **configuration,
        "extensions": {place: {**storage, "directory": str(folder / "read-so-far")}},
        "receivers": {receiver: {**settings, "include": there, "poll_interval": "100ms"}},
        "service": {**configuration["service"], **quiet},
    }
    file = folder / "collector.yaml"
    file.write_text(yaml.safe_dump(overrides))
    with running([str(collector_program()), "--config", str(file)], folder / "collector.log") as pid:
        yield pid


@contextmanager
def forwarding(to: str, folder: Path) -> Iterator[str]:
    """The address of a collector that takes OTLP over HTTP and sends what it took to another address."""
    with held_port() as port:
        settings = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
            "exporters": {"otlphttp": {"endpoint": to, "compression": "none"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {kind: {"receivers": ["otlp"], "exporters": ["otlphttp"]} for kind in ("traces", "logs")},
            },
        }
        file = folder / "forwarding.yaml"
        file.write_text(yaml.safe_dump(settings))
        with running([str(collector_program()), "--config", str(file)], folder / "forwarding.log"):
            answers(f"http://127.0.0.1:{port}/", (folder / "forwarding.log"))
            yield f"http://127.0.0.1:{port}"


def answers(url: str, log: Path, seconds: float = 120.0) -> None:
    """Returns when a server says anything at all.

    Raises:
        AssertionError: it does not, with the end of its log.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer: {log.read_text()[-2000:]}")
