"""Deeds: what the end-to-end tests do to the cluster, and how they look at it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from demo.api import Api
from demo.settings import SYSTEM_NAMESPACE

T = TypeVar("T")
Json = dict[str, Any]


@dataclass
class WatchedWeights:
    """A watcher's observations while a test does something else."""

    weights: list[int] = field(default_factory=list)

    @property
    def highest(self) -> int:
        return max(self.weights, default=0)


class Rig:
    """The cluster, in the words of the tests."""

    def __init__(self, api: Api) -> None:
        self.api = api

    @cached_property
    def by_tls(self) -> bool:
        """Whether learnloop's parts speak TLS."""
        return self.api.get(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/learnloop-tls-data") is not None

    def apply(self, namespace: str, *objects: Json) -> None:
        """Applies objects as a user would."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.api.run("apply", "-n", namespace, "--server-side", "--force-conflicts", "-f", "-", stdin=document)

    def patch(self, namespace: str, resource: str, name: str, patch: Json) -> None:
        """A merge patch."""
        self.api.run("patch", "-n", namespace, resource, name, "--type=merge", "-p", json.dumps(patch))

    def status(self, namespace: str, plural: str, name: str) -> Json:
        """The status of a learnloop object; empty before the operator saw it."""
        return (self.api.custom(namespace, plural, name) or {}).get("status") or {}

    def until(self, what: str, look: Callable[[], T | bool | None], seconds: float, every: float = 0.5) -> T:
        """Polls until `look` returns something true; AssertionError otherwise."""
        deadline = time.monotonic() + seconds
        while True:
            state = look()
            if state:
                return state  # type: ignore[return-value]
            assert time.monotonic() < deadline, f"{what} did not happen within {seconds:.0f} s"
            time.sleep(every)

    def phase(self, namespace: str, plural: str, name: str, *wanted: str, seconds: float) -> Json:
        """Waits for one of the phases and returns the status."""

        def look() -> Json | None:
            status = self.status(namespace, plural, name)
            return status if status.get("phase") in wanted else None

        return self.until(f"{plural}/{name} in phase {' or '.join(wanted)}", look, seconds)

    def condition(self, namespace: str, plural: str, name: str, type_: str, status: str, seconds: float) -> str:
        """Waits for a condition and returns its message."""

        def look() -> str | None:
            for item in self.status(namespace, plural, name).get("conditions", []):
                if item["type"] == type_ and item["status"] == status:
                    return f"{item['reason']}: {item['message']}"
            return None

        return self.until(f"{plural}/{name} condition {type_}={status}", look, seconds)

    def kill_operator(self) -> None:
        """kill -9: no grace, no clean-up; its Deployment starts another."""
        self.api.run(
            "delete", "pod", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/component=operator",
            "--grace-period=0", "--force",
        )  # fmt: skip

    def operator_restarts(self) -> dict[str, int]:
        """Container restarts of each of the operator's pods, by its uid: a pod of an earlier version may go meanwhile,
        and takes its own with it."""
        pods = self.api.pods(SYSTEM_NAMESPACE, "app.kubernetes.io/component=operator")
        return {
            pod["metadata"]["uid"]: sum(item["restartCount"] for item in pod["status"].get("containerStatuses", []))
            for pod in pods
        }

    def scale(self, resource: str, replicas: int) -> None:
        """Scales a part of the installation and waits until it is so."""
        self.api.run("scale", "-n", SYSTEM_NAMESPACE, resource, f"--replicas={replicas}")
        self.api.run("rollout", "status", "-n", SYSTEM_NAMESPACE, resource, "--timeout=120s")

    def canary_weight(self, namespace: str, deployment: str) -> int:
        """Percent of new episodes for the canary, from the routing table the policy servers obey."""
        routing = self.api.get(f"/api/v1/namespaces/{namespace}/configmaps/{deployment}-routing") or {}
        table = json.loads(routing.get("data", {}).get("routing.json", '{"arms": []}'))
        return sum(arm["weight"] for arm in table["arms"] if arm["role"] == "canary")

    def expire_routing(self, namespace: str, deployment: str) -> None:
        """The routing table's time is up, as it is ten minutes after the operator's last sign of life."""
        name = f"{deployment}-routing"
        routing = self.api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
        assert routing, f"no ConfigMap {name}"
        table = json.loads(routing["data"]["routing.json"]) | {"expires_at": "2020-01-01T00:00:00Z"}
        self.patch(namespace, "configmap", name, {"data": {"routing.json": json.dumps(table)}})

    @contextmanager
    def watching_weights(self, namespace: str, deployment: str) -> Iterator[WatchedWeights]:
        """Notes the canary's weight several times a second for the time of the block."""
        weights, stop = WatchedWeights(), threading.Event()

        def watch() -> None:
            while not stop.wait(0.3):
                weight = self.canary_weight(namespace, deployment)
                if not weights.weights or weights.weights[-1] != weight:
                    weights.weights.append(weight)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield weights
        finally:
            stop.set()
            thread.join()


def learnloop(kind: str, name: str, spec: Json) -> Json:
    """A learnloop object."""
    return {"apiVersion": "learnloop.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def own_namespace(api: Api, name: str) -> Iterator[str]:
    """A namespace as it was never there before, under the restricted pod security standard; gone afterwards."""
    api.run("delete", "namespace", name, "--ignore-not-found", "--wait", "--timeout=120s")
    api.run("create", "namespace", name)
    api.run("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    api.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")
