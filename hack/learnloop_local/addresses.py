"""Ports of pods and Services on loopback: what a cluster's network is to the product's own addresses."""

import asyncio
import contextlib
import random
import re
import socket
from collections.abc import Mapping
from typing import Any

from learnloop_local.store import Object, Store
from learnloop_operator.kube import kinds

LOOPBACK = "127.0.0.1"
_SERVICE = re.compile(r"\b([a-z0-9][a-z0-9.-]*)\.([a-z0-9-]+)\.svc(?:\.cluster\.local)?:(\d+)\b")
CHUNK = 65_536


def free_port() -> int:
    """A port that is free now. Who gets it late and finds it taken ends, and is started again with another."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


class Addresses:
    """Each port of a Service is one of this machine, from which connections go on to a ready pod.

    Attributes:
        pods: by uid of a pod, the ports of this machine by their name and number in the pod.
        fixed: ports of parts that no pod serves, by namespace, name and number of their Service.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pods: dict[str, dict[str, int]] = {}
        self.fixed: dict[tuple[str, str, str], int] = {}
        self._servers: dict[tuple[str, str, str], tuple[socket.socket, asyncio.Server | None]] = {}

    def translated(self, text: str) -> str:
        """The text with this machine's addresses in place of Services'."""
        return _SERVICE.sub(lambda hit: f"{LOOPBACK}:{self.port(hit[2], hit[1], hit[3])}", text)

    def port(self, namespace: str, name: str, port: str) -> int:
        """This machine's port of a Service, which need not exist yet."""
        key = namespace, name, port
        if key in self.fixed:
            return self.fixed[key]
        if key not in self._servers:
            listener = socket.create_server((LOOPBACK, 0))
            self._servers[key] = listener, None
            asyncio.get_running_loop().create_task(self._serve(key, listener))
        return int(self._servers[key][0].getsockname()[1])

    def locate(self, plural: str, namespace: str, name: str, port: str) -> str | None:
        """The address of a port of a Service or pod; None where it does not answer."""
        if plural == "services":
            fixed = next((number for key, number in self.fixed.items() if key[:2] == (namespace, name)), None)
            return f"{LOOPBACK}:{fixed}" if fixed else self._behind(namespace, name, port)
        pod = self._store.find(kinds.POD, namespace, name)
        number = self.pods.get(pod["metadata"]["uid"], {}).get(port) if pod else None
        return f"{LOOPBACK}:{number}" if number else None

    def _behind(self, namespace: str, name: str, port: str) -> str | None:
        """A ready pod behind the Service, at random."""
        service = self._store.find(kinds.SERVICE, namespace, name)
        if service is None:
            return None
        spec = service["spec"]
        ports = spec.get("ports") or ()
        target = next((item.get("targetPort", item["port"]) for item in ports if port in _called(item)), None)
        labels = ",".join(f"{key}={value}" for key, value in (spec.get("selector") or {}).items())
        ready = [pod for pod in self._store.every(kinds.POD, namespace, labels) if is_ready(pod)]
        numbers = [self.pods.get(pod["metadata"]["uid"], {}).get(str(target)) for pod in ready]
        chosen = [number for number in numbers if number]
        return f"{LOOPBACK}:{random.choice(chosen)}" if chosen else None

    async def _serve(self, key: tuple[str, str, str], listener: socket.socket) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address = self._behind(*key)
            with contextlib.suppress(OSError):
                if address is not None:
                    host, _, port = address.partition(":")
                    onward, back = await asyncio.open_connection(host, int(port))
                    async with asyncio.TaskGroup() as both:
                        both.create_task(_pass_on(reader, back))
                        both.create_task(_pass_on(onward, writer))
            writer.close()

        self._servers[key] = listener, await asyncio.start_server(connected, sock=listener)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


def _called(port: Mapping[str, Any]) -> tuple[str, str]:
    return str(port.get("name")), str(port["port"])


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
