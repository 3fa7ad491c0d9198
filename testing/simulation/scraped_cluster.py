"""The simulated cluster under a Prometheus that remembers when it saw each pod, and what really happened."""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from learnloop_api import names
from learnloop_operator.cli.prometheus_history import PrometheusHistory
from testing.simulation.rollout_cluster import Cluster

LOOKBACK = 300.0


@dataclass
class Happened:
    """One rollout as the operator told it in the status."""

    canary: str
    stable: str
    began: datetime
    fate: str = "running"
    """running, promoted, RolledBack (a guard that rolled it back included), or replaced by another canary."""


class ScrapedCluster(Cluster):
    """Pods of a new Deployment have new names, start after `start` seconds and end `grace` seconds after it went."""

    def __init__(self, keep: int = 30, every: int = 2, start: int = 3, grace: int = 12) -> None:
        super().__init__(keep=keep)
        self.every, self.start, self.grace = every, start, grace
        self.blind = False
        """Prometheus is away."""
        self.unseen: set[str] = set()
        """Revisions whose pods it cannot reach."""
        self.scrapes: dict[tuple[str, str], list[float]] = {}
        self.marked: dict[tuple[str, str], float] = {}
        """When a pod was known to be gone."""
        self.happened: list[Happened] = []
        self._pods: dict[str, tuple[str, datetime]] = {}
        self._dying: dict[tuple[str, str], datetime] = {}
        self._number = 0

    def evict(self, revision: str) -> None:
        """The revision's pod goes, and another one comes."""
        name, _ = self._pods.pop(revision)
        self._dying[revision, name] = self.now

    def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            super().tick(1)
            self._live()
            if not self.blind and self.now.timestamp() % self.every == 0:
                self._scrape()

    def _live(self) -> None:
        arms = {item["metadata"]["labels"][names.LABEL_REVISION] for item in self.deployments.values()}
        for revision in arms - set(self._pods):
            self._number += 1
            self._pods[revision] = f"md-{revision}-{self._number}", self.now
        for revision in set(self._pods) - arms:
            self.evict(revision)
        for pod, since in list(self._dying.items()):
            if (self.now - since).total_seconds() > self.grace:
                del self._dying[pod]
                if not self.blind:
                    self.marked[pod] = self.now.timestamp()

    def _scrape(self) -> None:
        now = self.now.timestamp()
        up = {
            (revision, pod)
            for revision, (pod, born) in self._pods.items()
            if (self.now - born).total_seconds() >= self.start
        }
        for revision, pod in up | set(self._dying):
            if revision not in self.unseen:
                self.scrapes.setdefault((revision, pod), []).append(now)

    def _status(self, status: dict[str, Any]) -> None:
        before = self.status
        super()._status(status)
        old, new = (item.get("canary") or {} for item in (before, status))
        if new and new["revision"] != old.get("revision"):
            if self.happened and self.happened[-1].fate == "running":
                self.happened[-1].fate = "replaced"
            self.happened.append(Happened(new["revision"], status["stable"]["revision"], self.now))
        if not self.happened:
            return
        last = self.happened[-1]
        if status["stable"]["revision"] == last.canary and last.fate == "running":
            last.fate = "promoted"
        pinned = status.get("blockedRevision") or {}
        if pinned.get("revision") == last.canary and pinned != before.get("blockedRevision"):
            last.fate = "RolledBack"

    def history(self) -> PrometheusHistory:
        """As the command asks for it; answers the two queries about pods."""

        def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
            assert names.METRIC_SERVER_STARTED in form["query"]
            if path == "query":
                at = float(form["time"])
                rows = [self._row(pod, [[at, str(times[0])]], "value") for pod, times in self._at(at).items()]
            else:
                first, last, step = (float(form[key]) for key in ("start", "end", "step"))
                moments = [first + number * step for number in range(int((last - first) // step) + 1)]
                seen: dict[tuple[str, str], list[Any]] = {}
                for moment in moments:
                    for pod, times in self._at(moment).items():
                        seen.setdefault(pod, []).append([moment, str(times[-1])])
                rows = [self._row(pod, values, "values") for pod, values in seen.items()]
            return 200, json.dumps({"status": "success", "data": {"result": rows}})

        history = PrometheusHistory(ask)
        history.at = self.now
        return history

    def _row(self, pod: tuple[str, str], values: list[Any], key: str) -> dict[str, Any]:
        found = values[0] if key == "value" else values
        return {"metric": {"revision": pod[0], "pod": pod[1]}, key: found}

    def _at(self, moment: float) -> dict[tuple[str, str], list[float]]:
        """The samples so far of each pod that Prometheus answers for at that moment."""
        found = {}
        for pod, times in self.scrapes.items():
            until = bisect_right(times, moment)
            if until and moment - times[until - 1] < LOOKBACK and moment < self.marked.get(pod, moment + 1):
                found[pod] = times[:until]
        return found

    def asked_at(self, at: datetime) -> None:
        """Look at the world of that moment."""
        self.now = at.astimezone(UTC)
