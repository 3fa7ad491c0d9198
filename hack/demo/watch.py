"""Watches one canary: its weight in the routing table, and what the policy servers themselves count."""

import json
import re
import time

from demo.api import Api, Json
from demo.settings import AGENT, Settings

SAMPLE = re.compile(r"^(learnloop_episodes_\w+_total)\{([^}]*)\} ([0-9.e+]+)", re.M)
LABEL = re.compile(r'(\w+)="([^"]*)"')


class Watch:
    """Everything a bad canary did, looked up a few times a second. Counters come straight from the pods: sooner
    and closer to the truth than any scrape."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api, self._settings = api, settings
        self._revision: str | None = None
        self._opened_before: float | None = None
        self.weight = 0
        self.max_weight = 0
        self.max_share = 0.0
        self.first_bad: float | None = None

    def look(self, canary: Json) -> None:
        """Looks once; `canary` is its part of the status, empty while there is none."""
        self._revision = canary.get("revision", self._revision)
        if self._revision is None:
            return
        self.weight = self._weight(self._revision)
        self.max_weight = max(self.max_weight, self.weight)
        opened, bad_opened, bad_ended = self._episodes(self._revision)
        if self._opened_before is None:
            self._opened_before = opened - bad_opened
        if meanwhile := opened - self._opened_before:
            self.max_share = max(self.max_share, bad_opened / meanwhile)
        if bad_ended and self.first_bad is None:
            self.first_bad = time.monotonic()

    def _weight(self, revision: str) -> int:
        path = f"/api/v1/namespaces/{self._settings.namespace}/configmaps/{AGENT}-routing"
        table = json.loads((self._api.get(path) or {}).get("data", {}).get("routing.json", '{"arms": []}'))
        return sum(arm["weight"] for arm in table["arms"] if arm["revision"] == revision)

    def _episodes(self, revision: str) -> tuple[float, float, float]:
        """Opened for anybody, opened for the revision, ended by the revision; summed over all policy servers."""
        opened = bad_opened = bad_ended = 0.0
        for pod in self._api.pods(self._settings.namespace, f"learnloop.dev/model-deployment={AGENT}"):
            path = f"/api/v1/namespaces/{self._settings.namespace}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
            for name, labels, value in SAMPLE.findall(self._api.text(path) or ""):
                told = dict(LABEL.findall(labels))
                is_bad = told.get("revision") == revision
                if name == "learnloop_episodes_opened_total":
                    opened += float(value)
                    bad_opened += float(value) if is_bad else 0.0
                elif name == "learnloop_episodes_ended_total" and is_bad and told.get("outcome") != "withdrawn":
                    bad_ended += float(value)
        return opened, bad_opened, bad_ended
