"""The pause in decisions when the leader goes: two real operator processes on a real API server.

    python -m bench.operator.failover [--rounds N]

The leader is ended by SIGTERM, then by SIGKILL, then stopped by SIGSTOP, in turns, each time up to 0.3 s after somebody
edited the object; the clock runs from the signal until the standby holds the Lease and has looked at the objects. Then
the stopped process goes on. `two_decisions_for_one_generation` counts the edits about which two processes decided, by
the statuses that the API server took. Prints one JSON object as its last line. Needs the development environment.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp

from bench.operator.control_plane import control_plane
from bench.operator.process import MODULES, cpu_wait_seconds
from bench.operator.witness import Landed, Witness, twice_decided, witness
from learnloop_api import names
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import LEASE, MODEL_DEPLOYMENT
from testing.operators.api_access import from_kubeconfig, patch

SYSTEM, LEASE_NAME, NAME = "learnloop-system", "learnloop-operator", "md"
PASSED = 'learnloop_reconcile_total{kind="ModelDeployment",result="ok"}'
PATIENCE = 90.0
SIGNALS = {"graceful": signal.SIGTERM, "killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
LIMITS = {"graceful": 3.0, "killed": 15.0, "stopped": 15.0}
EDITED_SECONDS = 0.3
"""A pass over an edited object takes less: some leaders go before it, some after it, some in the middle."""


class Process:
    """One operator."""

    def __init__(self, name: str, kubeconfig_file: Path, extra: Mapping[str, str] | None = None) -> None:
        self.name, self.port = name, _free_port()
        environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig_file),
            "POD_NAME": name,
            "LEARNLOOP_SYSTEM_NAMESPACE": SYSTEM,
            "LEARNLOOP_LEASE_NAME": LEASE_NAME,
            "LEARNLOOP_PORT": str(self.port),
            "LEARNLOOP_LOG_LEVEL": "ERROR",
            **(extra or {}),
        }
        self.process = subprocess.Popen([sys.executable, "-m", MODULES["ours"]], env=environment)

    async def works(self) -> bool:
        """It leads and has decided something. RuntimeError when it has ended by itself."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended by itself with {self.process.returncode}")
        text = await self._answer("/metrics")
        return "learnloop_leader 1.0" in text and PASSED in text

    def starved(self) -> float:
        """Seconds in which it wanted a core and had none so far."""
        return cpu_wait_seconds(self.process.pid)

    async def ready(self) -> bool:
        """Its watches stand."""
        return await self._answer("/readyz") == "ok"

    async def _answer(self, path: str) -> str:
        timeout, url = aiohttp.ClientTimeout(total=2.0), f"http://127.0.0.1:{self.port}{path}"
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
                return await answer.text()
        return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(condition: Any, what: str, starved: Callable[[], float] = lambda: 0.0) -> float:
    """Seconds until `condition()` held.

    Args:
        starved: seconds that the awaited process had no core; they do not try the patience.

    Raises:
        TimeoutError: it did not in PATIENCE seconds of the others.
    """
    began = time.monotonic()
    while not await condition():
        waited, lacked = time.monotonic() - began, starved()
        if waited - lacked > PATIENCE:
            raise TimeoutError(f"{what}, in {waited:.0f} s, {lacked:.0f} s of them without a core")
        await asyncio.sleep(0.02)
    return time.monotonic() - began


def model(number: int) -> dict[str, str]:
    """One of many that need no file."""
    return {"uri": f"uniform://discrete/2?observations={number}"}


async def prepare(kube: KubeClient) -> None:
    """A namespace for the Lease, and one object to decide about."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    await kube.http.request("POST", "/api/v1/namespaces", body=namespace)
    metadata = {"name": NAME, "namespace": SYSTEM}
    spec = {"model": model(4)}
    await kube.create({"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec})


async def measure(kubeconfig_file: Path, rounds: int, seed: int) -> tuple[dict[str, list[float]], list[Landed]]:
    """Seconds without a leader, by the way it went, and the statuses that were written meanwhile."""
    connection = from_kubeconfig(kubeconfig_file)
    kube, moments = KubeClient(connection), random.Random(seed)
    await prepare(kube)
    gaps: dict[str, list[float]] = {how: [] for how in SIGNALS}
    processes: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="learnloop-failover-") as folder:
        async with witness(connection) as watch:
            try:
                processes.append(await begun("operator-0", watch, Path(folder)))
                await until(processes[0].works, "the first operator never led")
                for number, how in enumerate([*SIGNALS] * rounds, 1):
                    processes.append(await begun(f"operator-{number}", watch, Path(folder)))
                    await until(processes[-1].ready, "the standby never watched")
                    await patch(kube, MODEL_DEPLOYMENT, SYSTEM, NAME, {"spec": {"model": model(4 + number)}})
                    await asyncio.sleep(moments.uniform(0.0, EDITED_SECONDS))
                    leader = processes[-2].process
                    leader.send_signal(SIGNALS[how])
                    gaps[how].append(await until(processes[-1].works, f"no leader after the leader was {how}"))
                    leader.send_signal(signal.SIGCONT)
                    await asyncio.to_thread(leader.wait, 30)
                transitions = (await kube.get(LEASE, SYSTEM, LEASE_NAME))["spec"]["leaseTransitions"]
                wanted = len(SIGNALS) * rounds
                assert transitions == wanted, f"{transitions} changes of the Lease in {wanted} rounds"
            finally:
                for item in processes:
                    if item.process.poll() is None:
                        item.process.kill()
                        item.process.wait()
                await kube.close()
    return gaps, watch.landed


async def begun(name: str, watch: Witness, folder: Path, extra: Mapping[str, str] | None = None) -> Process:
    """A process that is watched."""
    file = folder / f"{name}.kubeconfig"
    await watch.door(name, file)
    return Process(name, file, extra)


def figures(durations: dict[str, list[float]], landed: list[Landed]) -> dict[str, float]:
    """Longest and middle time of each way to go, in seconds, and how often each was tried; how many generations were
    decided about, and how many of them twice."""
    result = {"failovers_of_each_sort": float(len(durations["graceful"]))}
    for how, seconds in durations.items():
        result[f"failover_{how}_max_s"] = round(max(seconds), 2)
        result[f"failover_{how}_median_s"] = round(statistics.median(seconds), 2)
    result["generations_decided"] = len({item.generation for item in landed})
    result["two_decisions_for_one_generation"] = len(twice_decided(landed))
    return result


def main() -> int:
    """Exit code 1 when a limit is broken, or two decided about one generation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="failovers of each sort")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which leaders go")
    options = parser.parse_args()
    with control_plane() as kubeconfig_file:
        durations, landed = asyncio.run(measure(kubeconfig_file, options.rounds, options.seed))
    printed = figures(durations, landed)
    print(json.dumps({**printed, "cores": os.cpu_count()}))
    late = any(max(seconds) > LIMITS[how] for how, seconds in durations.items())
    return int(late or printed["two_decisions_for_one_generation"] > 0)


if __name__ == "__main__":
    sys.exit(main())
