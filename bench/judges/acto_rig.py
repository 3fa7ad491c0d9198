"""A cluster for Acto's changes: a real etcd, API server and operator process; controllers and kubelets are played."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.operator.api import Api, Expired
from bench.operator.control_plane import control_plane
from bench.operator.data_plane import data_plane
from learnloop_operator.kube import kinds
from learnloop_operator.kube.fenced_client import APPLIED, KubeClient
from learnloop_operator.kube.kinds import OWN_KINDS, ResourceKind, kind_of
from testing.operators import gateway_api, training_kinds
from testing.operators.api_access import from_kubeconfig

Object = dict[str, Any]
LEASE_NAME, LOOK = "learnloop-operator", "acto.example/look"
CHILDREN = (
    kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.SERVICE, kinds.CONFIG_MAP, kinds.SECRET, kinds.SERVICE_ACCOUNT,
    kinds.ROLE, kinds.ROLE_BINDING, kinds.JOB, kinds.PYTORCH_JOB, kinds.HTTP_ROUTE, kinds.NETWORK_POLICY,
)  # fmt: skip
OWN = {kind.kind: kind for kind in OWN_KINDS}
QUIET_SECONDS = 1.5
RECORD = re.compile(r"(?m)^(?! )")
"""Before each line of the log that does not continue another."""
QUIET = re.compile(r"\d{4}-\S+Z (DEBUG|INFO|WARNING) ")
"""Anything else is an error: what no logger has written, too."""
NUMBERS = re.compile(r"acto-\d+-\d+|[0-9a-f-]{8,}|\d+")
EXPLAINED: Mapping[str, re.Pattern[str]] = {
    "the API server makes a new kind's storage, and Kopf asks again": re.compile(r"storage is \(re\)initializing"),
}
"""Errors that are right, by why."""
PASSING = re.compile(r'"(generation|expires_at|since|at)":("[^"]*"|\d+|null),?|(?<=-gate-)[0-9a-f]{12}')
"""Numbers and times of a routing table, which is JSON in a text, and the part of a gate's Job that tells its begin."""
OF_THE_SERVER = {
    "uid", "resourceVersion", "creationTimestamp", "managedFields", "clusterIP", "clusterIPs", "generation",
    "lastTransitionTime", "observedGeneration", "message", "ownerReferences", "controller-uid",
    "batch.kubernetes.io/controller-uid", APPLIED, LOOK,
}  # fmt: skip


class Operator:
    """The operator's process, which may be killed."""

    def __init__(self, kubeconfig: Path, data_url: str) -> None:
        self._kubeconfig, self._data_url = kubeconfig, data_url
        self.log = kubeconfig.parent / "operator.log"
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """A new process."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {
            "SYSTEM_NAMESPACE": "default",
            "DATA_URL": self._data_url,
            "PORT": port,
            "LOG_LEVEL": os.environ.get("ACTO_LOG", "WARNING"),
        }
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "POD_NAME": f"acto-{port}"}
        environment |= {f"LEARNLOOP_{name}": str(value) for name, value in settings.items()}
        with self.log.open("ab") as file:
            command = [sys.executable, "-m", "learnloop_operator"]
            self.process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)

    def end(self, number: signal.Signals) -> None:
        """No line of it runs any more when this returns."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(60)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def errors(self) -> list[tuple[str, int]]:
        """The first of each kind of error that the log has and EXPLAINED has not, with how many there are."""
        kinds_of: dict[str, list[str]] = defaultdict(list)
        for record in RECORD.split(self.log.read_text(errors="replace")):
            if record.strip() and not QUIET.match(record) and not any(it.search(record) for it in EXPLAINED.values()):
                kinds_of[NUMBERS.sub("#", record.splitlines()[0])].append(record)
        return [(records[0], len(records)) for records in kinds_of.values()]


class Rig:
    """All objects of the namespaces as their watches have them, each namespace with the time of its last event."""

    def __init__(self, api: Api, operator: Operator) -> None:
        self.api, self.operator = api, operator
        self.objects: dict[str, dict[tuple[str, str], Object]] = defaultdict(dict)
        self.touched: dict[str, float] = defaultdict(time.monotonic)
        self.newest: dict[str, int] = defaultdict(int)
        """The resourceVersion of the last write that we made: nothing older is looked at."""
        self._dead: set[str] = set()

    async def follow(self, kind: ResourceKind) -> None:
        """Keep the objects of a kind up to date, and play who acts on them in a cluster."""
        while True:
            items, version = await self.api.list(kind)
            for item in items:
                await self._saw(kind, "ADDED", item)
            with contextlib.suppress(Expired):
                async for event, item in self.api.watch(kind, version):
                    await self._saw(kind, event, item)

    async def _saw(self, kind: ResourceKind, event: str, item: Object) -> None:
        namespace, key = item["metadata"].get("namespace", ""), (kind.kind, item["metadata"]["name"])
        self.touched[namespace] = time.monotonic()
        if event == "DELETED":
            self.objects[namespace].pop(key, None)
            self._dead.add(item["metadata"]["uid"])
            for child in self.owned(namespace, item["metadata"]["uid"]):
                await self._collect(child)
            return
        self.objects[namespace][key] = {"apiVersion": kind.api_version, "kind": kind.kind, **item}
        if self._dead.intersection(owner["uid"] for owner in item["metadata"].get("ownerReferences", ())):
            await self._collect(self.objects[namespace][key])  # made while the operator had not heard of the end yet
        elif (status := played(kind, item)) is not None:
            with contextlib.suppress(RuntimeError):  # it may be gone
                await self.api.merge(kind, namespace, key[1], {"status": status}, "status")

    async def _collect(self, item: Object) -> None:
        """Be the garbage collector."""
        with contextlib.suppress(RuntimeError):  # it may be gone
            await self.api.delete(kind_of(item), item["metadata"]["namespace"], item["metadata"]["name"])

    def owned(self, namespace: str, uid: str) -> list[Object]:
        items = self.objects[namespace].values()
        return [it for it in items if any(o["uid"] == uid for o in it["metadata"].get("ownerReferences", ()))]

    def current(self, namespace: str) -> bool:
        """The operator has seen every spec, and nothing has happened for a while."""
        assert self.operator.alive(), "the operator has ended by itself"
        own = [item for (kind, _), item in self.objects[namespace].items() if kind in OWN]
        observed = [(it.get("status") or {}).get("observedGeneration") == it["metadata"]["generation"] for it in own]
        newest = max((int(item["metadata"]["resourceVersion"]) for item in own), default=0)
        quiet = time.monotonic() - self.touched[namespace] > QUIET_SECONDS
        return quiet and all(observed) and newest >= self.newest[namespace]

    def state(self, namespace: str) -> dict[str, Any]:
        """All that is in a namespace, without what the server or the time adds."""
        state: dict[str, Any] = {}
        for (kind, name), item in sorted(self.objects[namespace].items()):
            if name in ("kube-root-ca.crt", "default"):
                continue
            body = {key: value for key, value in item.items() if key not in ("status", "apiVersion", "kind")}
            if kind == "Secret":
                body["data"] = sorted(body.get("data") or {})
            if kind in OWN:
                status = item.get("status") or {}
                conditions = {it["type"]: [it["status"], it["reason"]] for it in status.get("conditions", ())}
                body["status"] = {"phase": status.get("phase"), "conditions": conditions}
            state.setdefault(timeless(f"{kind}/{name}", namespace), []).append(timeless(body, namespace))
        return state


def played(kind: ResourceKind, item: Object) -> Object | None:
    """The status that a controller and kubelets would give it; None where it has that already."""
    status, generation = item.get("status") or {}, item["metadata"].get("generation", 0)
    count = item.get("spec", {}).get("replicas", 1)
    if kind in (kinds.DEPLOYMENT, kinds.STATEFUL_SET):
        wanted = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), count)
        wanted["observedGeneration"] = generation
        return None if {key: status.get(key, 0) for key in wanted} == wanted else wanted
    if kind == kinds.HTTP_ROUTE and not status.get("parents"):
        at = item["metadata"]["creationTimestamp"]
        conditions = [{**it, "lastTransitionTime": at, "observedGeneration": generation} for it in gateway_api.ACCEPTED]
        parent = item["spec"]["parentRefs"][0]
        return {"parents": [{"controllerName": "acto.example/gateway", "parentRef": parent, "conditions": conditions}]}
    if kind == kinds.PYTORCH_JOB and not status.get("conditions"):
        running = {"type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "it runs"}
        return {"conditions": [running | {"lastTransitionTime": item["metadata"]["creationTimestamp"]}]}
    return None


def timeless(item: Any, namespace: str) -> Any:
    """Without what depends on when and where it was made."""
    if isinstance(item, Mapping):
        return {key: timeless(value, namespace) for key, value in sorted(item.items()) if key not in OF_THE_SERVER}
    if isinstance(item, list):
        return [timeless(value, namespace) for value in item]
    return PASSING.sub("", item.replace(namespace, "NAMESPACE")) if isinstance(item, str) else item


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar, with its path."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from leaves(below, f"{path}/{key}")
    elif isinstance(value, list) and value:
        for number, below in enumerate(value):
            yield from leaves(below, f"{path}/{number}")
    else:
        yield path, value


def difference(before: Any, after: Any) -> dict[str, tuple[Any, Any]]:
    """Paths at which two states differ, with both values."""
    old, new = dict(leaves(before)), dict(leaves(after))
    return {
        path: (old.get(path), new.get(path))
        for path in sorted({*old, *new})
        if old.get(path, old) != new.get(path, old)
    }


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    """An API server with all kinds, an operator at work, and everybody who acts on objects, played."""
    with control_plane() as kubeconfig:
        user = KubeClient(from_kubeconfig(kubeconfig), timeout=60.0)
        await gateway_api.install(user)
        await training_kinds.install(user, training_kinds.SOURCES[:1])
        await user.close()
        async with Api(kubeconfig) as api, data_plane() as url, asyncio.TaskGroup() as group:
            operator = Operator(kubeconfig, url)
            made = Rig(api, operator)
            tasks = [group.create_task(made.follow(kind)) for kind in (*OWN_KINDS, *CHILDREN)]
            operator.begin()
            try:
                yield made
            finally:
                for task in tasks:
                    task.cancel()
                operator.end(signal.SIGTERM)
