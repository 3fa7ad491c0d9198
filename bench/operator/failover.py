"""How long nobody decides when the leader goes: two real operator processes on a real API server.

    python -m bench.operator.failover [--rounds N]

The leader is ended by SIGTERM, then by SIGKILL, in turns; the clock runs from the signal until the standby holds the
Lease and has looked at the objects. Prints one JSON object as its last line. Needs the development environment.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from bench.operator.control_plane import control_plane
from bench.operator.process import AS_IN_IMAGE, MODULES

from learnloop_api import names
from learnloop_operator.adapters import kubeconfig
from learnloop_operator.adapters.kinds import LEASE
from learnloop_operator.adapters.kube import KubeClient

SYSTEM, LEASE_NAME = "learnloop-system", "learnloop-operator"
PASSED = 'learnloop_reconcile_total{kind="ModelDeployment",result="ok"}'
PATIENCE = 90.0
LIMITS = {"graceful": 3.0, "killed": 15.0}


class Process:
    """One operator."""

    def __init__(self, name: str, kubeconfig_file: Path) -> None:
        self.port = _free_port()
        environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig_file),
            "POD_NAME": name,
            "LEARNLOOP_SYSTEM_NAMESPACE": SYSTEM,
            "LEARNLOOP_LEASE_NAME": LEASE_NAME,
            "LEARNLOOP_PORT": str(self.port),
            "LEARNLOOP_LOG_LEVEL": "ERROR",
        }
        self.process = subprocess.Popen([*AS_IN_IMAGE, MODULES["ours"]], env=environment)

    async def works(self) -> bool:
        """It leads and has decided something."""
        text = await self._answer("/metrics")
        return "learnloop_leader 1.0" in text and PASSED in text

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


async def until(condition: Any, what: str) -> float:
    """Seconds until `condition()` held. Raises TimeoutError."""
    began = time.monotonic()
    while not await condition():
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError(what)
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def prepare(kube: KubeClient) -> None:
    """A namespace for the Lease, and one object to decide about."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    await kube.http.request("POST", "/api/v1/namespaces", body=namespace)
    spec = {"model": {"uri": "uniform://discrete/2?observations=4"}}
    metadata = {"name": "md", "namespace": SYSTEM}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}
    await kube.create(body)


async def measure(kubeconfig_file: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds without a leader, by the way it went."""
    kube = KubeClient(kubeconfig.from_kubeconfig(kubeconfig_file))
    await prepare(kube)
    processes = [Process("operator-0", kubeconfig_file)]
    found: dict[str, list[float]] = {"graceful": [], "killed": []}
    try:
        await until(processes[0].works, "the first operator never led")
        for number in range(2 * rounds):
            how = "graceful" if number % 2 == 0 else "killed"
            standby = Process(f"operator-{number + 1}", kubeconfig_file)
            processes.append(standby)
            await until(standby.ready, "the standby never watched")
            leader = processes[-2].process
            leader.send_signal(signal.SIGTERM if how == "graceful" else signal.SIGKILL)
            found[how].append(await until(standby.works, f"nobody led after the leader was {how}"))
            leader.wait(30)
        transitions = (await kube.get(LEASE, SYSTEM, LEASE_NAME))["spec"]["leaseTransitions"]
        assert transitions == 2 * rounds, f"{transitions} changes of the Lease in {2 * rounds} rounds"
    finally:
        for item in processes:
            if item.process.poll() is None:
                item.process.kill()
                item.process.wait()
        await kube.close()
    return found


def figures(found: dict[str, list[float]]) -> dict[str, float]:
    """Longest and middle time of each way to go, in seconds, and how often each was tried."""
    result = {"failovers_of_each_sort": float(len(found["graceful"]))}
    for how, seconds in found.items():
        result[f"failover_{how}_max_s"] = round(max(seconds), 2)
        result[f"failover_{how}_median_s"] = round(statistics.median(seconds), 2)
    return result


def main() -> int:
    """Exit code 1 when a limit is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="failovers of each sort")
    asked = parser.parse_args()
    with control_plane() as kubeconfig_file:
        found = asyncio.run(measure(kubeconfig_file, asked.rounds))
    print(json.dumps({**figures(found), "cores": os.cpu_count()}))
    return int(any(max(seconds) > LIMITS[how] for how, seconds in found.items()))


if __name__ == "__main__":
    sys.exit(main())
