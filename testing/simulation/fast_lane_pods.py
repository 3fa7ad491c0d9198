"""Pods whose counters the fast lane reads, and what it makes of them look by look."""

import math
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.checks.hard_bound import Reading
from learnloop_operator.rollout.fast_lane import UNREACHABLE, PodEvidence, breach, looked, of_episodes

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(seconds=4)
METRICS = [
    {"name": "success", "type": "success", "min": 0.8, "minEpisodes": 3},
    {"name": "errors", "type": "errors", "max": 0.05, "minEpisodes": 3},
    {"name": "slow", "type": "latency", "max": 0.1, "minEpisodes": 1},
    {"name": "return", "type": "return", "min": 50, "returnRange": {"lowest": 0, "highest": 100}, "minEpisodes": 3},
]
SPEC: dict[str, Any] = {
    "model": {"uri": "https://models.example/1.onnx", "sha256": "ab" * 32},
    "rollout": {"steps": [{"weight": 10}, {"weight": 100}]},
    "analysis": {"metrics": METRICS},
}
CHECKS = of_episodes(ModelDeploymentSpec.model_validate(SPEC), 10)
NEW = "md-pod"


class Pod:
    """The counters of one process."""

    def __init__(self, process: float = 1.0) -> None:
        self.process = process
        episodes = ("ended/success", "ended/failure", "ended/error", "ended/withdrawn", "gain", "loss")
        requests = ("requests", "failed", "within/0.05", "within/0.1", "within/0.25", "within/inf")
        self.counters = dict.fromkeys((*episodes, *requests), 0.0)

    def episode(self, outcome: str = "success", value: float = 80.0, seconds: float = 0.01) -> None:
        self.counters[f"ended/{outcome}"] += 1
        self.counters["gain" if value >= 0.0 else "loss"] += abs(value)
        self.request(seconds=seconds)

    def request(self, *, fails: bool = False, seconds: float = 0.01) -> None:
        self.counters["requests"] += 1
        self.counters["failed"] += fails
        for bound in (0.05, 0.1, 0.25, math.inf):
            self.counters[f"within/{bound!r}"] += seconds <= bound

    def requests(self, n: float, seconds: float) -> None:
        """So many requests that take as long."""
        self.counters["requests"] += n
        for bound in (0.05, 0.1, 0.25, math.inf):
            self.counters[f"within/{bound!r}"] += n * (seconds <= bound)

    def read(self, **damaged: float) -> Reading:
        return Reading(self.process, {**self.counters, **damaged})


def watched(weight: int = 10, *, steady: bool = True) -> PodEvidence:
    return PodEvidence("1" * 8, stamp(START), weight, steady=steady)


def look(direct: PodEvidence, *pods: Pod, second: int = 1, silent: Collection[int] = ()) -> PodEvidence:
    """The evidence after a look at `pods`; `silent`: the numbers of those that do not answer."""
    readings = {f"{NEW}-{index}": pod.read() for index, pod in enumerate(pods) if index not in silent}
    hang = {f"{NEW}-{index}": UNREACHABLE for index in silent}
    subject = replace(CHECKS, exposed=direct.weight > 0)
    return looked(direct, readings, subject, START + timedelta(seconds=second), second + 1, hang)


def after(pod: Pod, *outcomes: Any, direct: PodEvidence | None = None) -> PodEvidence:
    """The evidence after looks at `pod`, between each of which one of `outcomes` happens."""
    direct = look(direct or watched(), pod)
    for second, happens in enumerate(outcomes, 2):
        happens()
        direct = look(direct, pod, second=second)
    return direct


def cause(direct: PodEvidence) -> str:
    return breach(CHECKS, direct.alarms, "the canary")
