"""The counters of the policy servers, read from their pods: sooner and closer to the truth than any scrape."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from demo.api import Api

_SAMPLE = re.compile(r"^(learnloop_episode\w+_total)\{([^}]*)\} ([0-9.e+]+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Count(NamedTuple):
    """One counter of one pod."""

    pod: str
    metric: str
    labels: dict[str, str]
    value: float


def episode_counters(api: Api, namespace: str, agent: str) -> Iterator[Count]:
    """Every counter about episodes of the agent's policy servers and gateways. Pods that do not answer are left out."""
    for pod in api.pods(namespace, f"learnloop.dev/model-deployment={agent}"):
        if (pod.get("status") or {}).get("phase") != "Running":
            continue  # a gate's Job that has ended has the label, too, and does not answer there
        for metric, labels, value in _SAMPLE.findall(api.pod_metrics(pod) or ""):
            yield Count(pod["metadata"]["name"], metric, dict(_LABEL.findall(labels)), float(value))
