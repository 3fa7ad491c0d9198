"""Every write of an operator to one namespace, checked as it happens; and the place where the operator is killed."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from kubernetes_asyncio.client import Configuration

from learnloop_operator.kube import errors
from learnloop_operator.kube.http_transport import KubeHttp
from learnloop_operator.rollout.children.routing import read, read_route
from learnloop_operator.rollout.state.snapshot import LiveRouting
from testing.simulation.routed_users import Users, shares, stable_of

READS = ("GET",)
OWN = ("learningagents", "modeldeployments", "trainingjobs", "rewardpolicies", "memoryservices")


class Killed(BaseException):
    """The process is gone at this instruction: nothing in it runs on, no handler of Exception sees it."""


@dataclass(slots=True)
class Ledger:
    """All writes, of all writers; `kill` is armed with the number of a write and the side it dies on."""

    name: str
    spec: Mapping[str, Any]
    clock: Callable[[], datetime]
    kill: tuple[int, str] | None = None
    writes: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    routing: LiveRouting = field(default_factory=LiveRouting)
    users: Users = field(default_factory=Users)
    decisions: dict[int, str] = field(default_factory=dict)
    """The first routing table of each generation."""
    contested: int = 0
    """Tables that differ from the first of their generation."""
    replicas: dict[str, int] = field(default_factory=dict)
    unstarted: bool = False
    """A Deployment or a route was written, and neither kubelet nor gateway has looked since."""

    @property
    def total(self) -> int:
        """Writes so far."""
        return len(self.log)

    def shares(self) -> dict[str, int]:
        """Percent of new episodes by revision, as users get them."""
        return shares(self.routing, self.clock())

    def before(self, method: str, path: str) -> int:
        """A write is about to be sent: its number."""
        self.log.append(f"{method} {path.split('/namespaces/')[-1].split('/', 1)[-1]}")
        self.writes[self.log[-1].split("/")[0]] += 1
        if self.kill == (self.total, "before"):
            self.kill = None
            raise Killed
        return self.total

    def after(self, number: int, method: str, path: str, answer: Mapping[str, Any]) -> None:
        """The API server has done it; others may have been sent meanwhile."""
        self._note(method, path, answer)
        self._check(method, path)
        self.die_after(number)

    def die_after(self, number: int) -> None:
        """The write has its answer, were it a refusal: a Secret that is there already is made once more."""
        if self.kill == (number, "after"):
            self.kill = None
            raise Killed

    def _note(self, method: str, path: str, answer: Mapping[str, Any]) -> None:
        parts = path.split("/")
        if "modeldeployments" in parts and parts[-1] == "status":
            self.status = dict(answer.get("status") or {})
        elif "configmaps" in parts and method != "DELETE":
            self.routing = replace(read(dict(answer)), route=self.routing.route)
            self._decided()
        elif "httproutes" in parts:
            self.routing = replace(self.routing, route=read_route(None if method == "DELETE" else answer, self.name))
            self.unstarted = True
        elif "deployments" in parts:
            if method == "DELETE":
                self.replicas.pop(parts[-1], None)
            else:
                self.replicas[parts[-1]] = int(answer["spec"]["replicas"])
                self.unstarted = True

    def _decided(self) -> None:
        table = self.routing.table
        if table is not None and self.decisions.setdefault(table.generation, table.to_json()) != table.to_json():
            self.contested += 1

    def _check(self, method: str, path: str) -> None:
        parts = path.split("/")
        if any(kind in parts for kind in OWN) and parts[-1] != "status":
            self._violated(f"{method} {path}: the user's object was written")
        stable = stable_of(self.routing)
        for revision, weight in self.shares().items():
            replicas = self.replicas.get(f"{self.name}-{revision}", 0)
            if weight and not replicas:
                self._violated(f"{method} {path}: users get {weight} % of {revision}, which has no pods")
            if revision == stable and replicas < self.spec["serving"]["replicas"]:
                self._violated(f"{method} {path}: stable {revision} has {replicas} pods")
            if revision != stable and weight:
                self._canary(revision, weight, f"{method} {path}")
        if wrong := self.users.wronged(self.routing, self.status, self.clock()):
            self._violated(f"{method} {path}: {wrong}")

    def _canary(self, revision: str, weight: int, where: str) -> None:
        canary, step = self.status.get("canary"), self.status.get("step")
        if canary is None:
            trusted = [(self.status.get(role) or {}).get("revision") for role in ("stable", "previous")]
            arms = (self.status.get("experiment") or {}).get("arms") or ()
            challenges = any(arm["revision"] == revision and weight <= arm["weight"] for arm in arms if _plays(arm))
            if not challenges and revision not in trusted and ("configmaps" in where or "httproutes" in where):
                self._violated(f"{where}: {weight} % to {revision}, which is neither stable nor canary")
            return
        allowed = self.spec["rollout"]["steps"][step]["weight"] if step is not None else 0
        if weight > allowed:
            self._violated(f"{where}: {weight} % where step {step} allows {allowed} %")

    def _violated(self, text: str) -> None:
        self.violations.append(text)


def _plays(arm: Mapping[str, Any]) -> bool:
    return bool(arm["name"] != "stable" and arm["standing"] == "playing")


class TappedHttp(KubeHttp):
    """The operator's HTTP client with the ledger behind it."""

    def __init__(self, connection: Configuration, ledger: Ledger) -> None:
        super().__init__(connection, 60.0)
        self._ledger = ledger

    async def _once(
        self, method: str, path: str, body: Any, content_type: str, query: dict[str, str] | None
    ) -> dict[str, Any]:
        if method in READS:
            return await super()._once(method, path, body, content_type, query)
        number = self._ledger.before(method, path)
        try:
            answer = await super()._once(method, path, body, content_type, query)
        except errors.KubeError:
            self._ledger.die_after(number)
            raise
        self._ledger.after(number, method, path, answer)
        return answer
