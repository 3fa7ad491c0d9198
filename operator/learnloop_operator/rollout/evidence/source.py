"""The port through which evidence comes: what a decision asks about its arms, and who may answer.

Prometheus is one implementation (prometheus/evidence_source.py); there the data plane adds what only it knows.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.evidence.arm_evidence import Evidence

POD_LABEL = "pod"
"""The label that has a server's pod, set by Prometheus and not by the one that is scraped."""


class ExtraSeries(Enum):
    """What only some types of metrics need beside the counters of episodes."""

    LATENCY = "requests by duration"
    RETURNS = "episodes by return"
    RETURN_DRIFT = "episodes by return, earlier and lately"
    REWARDS = "rewarded episodes and their raw rewards"
    OPINIONS = "rated episodes and what people think of them"


@dataclass(frozen=True, slots=True)
class Window:
    """Ask for `revision` over the last `seconds`."""

    revision: str
    seconds: int
    whole: int = 0
    recent: int = 0
    """Returns of the last `whole` seconds, the `recent` ones apart; 0: there is nothing earlier to compare with."""


@dataclass(frozen=True, slots=True)
class EvidenceRequest:
    """Everything that one look at a ModelDeployment has to know of its arms."""

    namespace: str
    name: str
    windows: tuple[Window, ...]
    metrics: tuple[MetricThreshold, ...]
    lately_seconds: int = 0
    """Count the episodes of so many seconds apart, to tell whether any come at all; 0: do not."""
    deadline_seconds: int = 0
    """Tell what became of the episodes that were opened longer ago than this; 0: do not."""


class EvidenceSource(Protocol):
    """A place that knows what the arms of a rollout have done. No method raises: what cannot be had is said in the
    evidence itself."""

    async def of_episodes(self, request: EvidenceRequest) -> Evidence:
        """Evidence of every window's arm."""
        ...

    async def of_copies(self, namespace: str, name: str, window: Window) -> Evidence:
        """Evidence of an arm in shadow, by the copies of requests that it got."""
        ...
