"""Notifications while everything is killed, by SIGKILL at random moments: data plane, PostgreSQL, receivers.

Each agent's run ends once, and a webhook and a mail server are to hear of it. Lost: nobody heard. Doubled: heard of by
two ids, so that a receiver that keeps ids takes it for two. Repeated: heard of again by the same id, which
at-least-once delivery allows.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from bench.pipeline.world import Postgres
from learnloop_api import events, names
from testing.servers.data_plane_process import Product, postgres
from testing.servers.ports import held_port

STATUS = events.EVENTS[names.SUBJECT_TRAINING_STATUS][1]
CHANNELS = ("webhook", "mail")
VICTIMS = ("data plane", "PostgreSQL", "receivers")
SETTLE_SECONDS = 300.0
"""After the last kill: a claim lasts half a minute, and what was refused is tried again after up to 40 s."""


class Receivers:
    """The process, and what it has taken over all of its lives."""

    def __init__(self, file: Path, http_port: int, smtp_port: int) -> None:
        self._command = [
            sys.executable,
            "-m",
            "bench.watch.notified_process",
            str(file),
            str(http_port),
            str(smtp_port),
        ]
        self._file = file
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when both listen."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit("the receivers did not start")

    def kill(self) -> None:
        """By SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def taken(self) -> dict[str, dict[str, list[str]]]:
        """Ids by channel and run, as often as each was told."""
        found: dict[str, dict[str, list[str]]] = {channel: defaultdict(list) for channel in CHANNELS}
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                channel, identity, job = line.split(" ")
                found[channel][job].append(identity)
        return found


def measured(agents: int, kills: int, seed: int) -> dict[str, Any]:
    """Figures of this part, printed for people as well; `missed` names the goals that were."""
    draw = Random(seed)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="learnloop-watch-")))
        http_port, smtp_port = stack.enter_context(held_port()), stack.enter_context(held_port())
        database = Postgres(stack.enter_context(postgres()))
        receivers = Receivers(directory / "taken", http_port, smtp_port)
        stack.callback(receivers.kill)
        receivers.start()
        (directory / "key").write_text("a-key")
        settings = {
            "NOTIFICATIONS": json.dumps({"receivers": _receivers(http_port, smtp_port)}),
            "NOTIFICATIONS_SECRETS": str(directory),
        }
        product = Product(database.dsn, database.data, directory / "artifacts", **settings)
        stack.callback(product.kill)
        product.start()
        killed = _told_and_killed(
            draw, product, database, receivers, [f"run-{number}" for number in range(agents)], kills
        )
        figures = _counted(receivers, agents)
    figures |= {"kills": killed}
    print(
        f"{agents} ends told to a webhook and by mail with {sum(killed.values())} kills: {figures['lost']} lost, "
        f"{figures['doubled']} doubled, {figures['repeated']} told again by the same id"
    )
    missed = [name for name in ("lost", "doubled") if figures[name]]
    return figures | {"missed": missed}


def _receivers(http_port: int, smtp_port: int) -> list[dict[str, Any]]:
    mail = {"host": "127.0.0.1", "port": smtp_port, "security": "none", "sender": "a@example.org"}
    address = f"http://127.0.0.1:{http_port}/"
    return [
        {"name": "ops", "type": "webhook", "url": address, "secret": "key", "privateAddresses": True},
        {"name": "mail", "type": "email", "email": {**mail, "to": ["b@example.org"]}, "privateAddresses": True},
    ]


def _told_and_killed(
    draw: Random, product: Product, database: Postgres, receivers: Receivers, jobs: list[str], kills: int
) -> dict[str, int]:
    """Tells of every run, as often as it takes, as the operator does; meanwhile kills one of the three again and again.
    Returns how often each was killed."""
    told = threading.Thread(target=_tell, args=(product, jobs, draw.random()))
    told.start()
    killed = dict.fromkeys(VICTIMS, 0)
    for number in range(kills):
        time.sleep(draw.uniform(0.3, 1.5))
        victim = VICTIMS[number % len(VICTIMS)]
        killed[victim] += 1
        if victim == "receivers":
            receivers.kill()
            time.sleep(draw.uniform(0.0, 1.0))
            receivers.start()
        elif victim == "PostgreSQL":
            database.kill()
            database.start()
        else:
            product.kill()
            product.start()
    told.join()
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        found = receivers.taken()
        if all(len(found[channel]) == len(jobs) for channel in CHANNELS):
            break
        time.sleep(0.5)
    return killed


def _tell(product: Product, jobs: list[str], spread: float) -> None:
    for job in jobs:
        body = {**STATUS, "job": job, "job_uid": job, "status": "completed", "phase": "validated"}
        while True:
            try:
                product.post(f"/api/v1/training/runs/{job}/status", body, "PUT")
                break
            except OSError:  # it is down, or its answer is lost: the same again
                time.sleep(0.2)
        time.sleep(0.02 + 0.02 * spread)


def _counted(receivers: Receivers, agents: int) -> dict[str, Any]:
    found = receivers.taken()
    per_run = [identities for channel in CHANNELS for identities in found[channel].values()]
    return {
        "told": agents * len(CHANNELS),
        "lost": agents * len(CHANNELS) - len(per_run),
        "doubled": sum(len(set(identities)) > 1 for identities in per_run),
        "repeated": sum(len(identities) - len(set(identities)) for identities in per_run),
    }
