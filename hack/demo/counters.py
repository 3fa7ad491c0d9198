"""What the policy servers count, read from their pods: sooner and closer to the truth than any scrape."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from demo.api import Api
from demo.settings import AGENT

_SAMPLE = re.compile(r"^(learnloop_episode\w+_total)\{([^}]*)\} ([0-9.e+]+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Count(NamedTuple):
    """One counter of one pod."""

    pod: str
    metric: str
    labels: dict[str, str]
    value: float


def episode_counters(api: Api, namespace: str) -> Iterator[Count]:
    """Every counter about episodes of every policy server of the demo's agent. Pods that do not answer are left out."""
    for pod in api.pods(namespace, f"learnloop.dev/model-deployment={AGENT}"):
        name = pod["metadata"]["name"]
        text = api.text(f"/api/v1/namespaces/{namespace}/pods/{name}:8080/proxy/metrics") or ""
        for metric, labels, value in _SAMPLE.findall(text):
            yield Count(name, metric, dict(_LABEL.findall(labels)), float(value))
