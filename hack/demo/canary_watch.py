"""Watches one canary: its weight in the routing table, and what the policy servers themselves count."""

import json
import time

from demo.api import Api, Json
from demo.counters import episode_counters
from demo.settings import Settings


class Watch:
    """Everything a bad canary did, looked up a few times a second."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api, self._settings = api, settings
        self._revision: str | None = None
        self._opened: dict[str, float] | None = None
        self._meanwhile = self._bad_opened = 0.0
        self.weight = 0
        self.max_weight = 0
        self.max_share = 0.0
        self.first_bad: float | None = None

    def look(self, canary: Json) -> None:
        """Looks once; `canary` is its part of the status, empty while there is none."""
        self._revision = canary.get("revision", self._revision)
        bad_ended = self._count(self._revision)
        if self._revision is None:
            return
        self.weight = self._weight(self._revision)
        self.max_weight = max(self.max_weight, self.weight)
        if self._meanwhile:
            self.max_share = max(self.max_share, self._bad_opened / self._meanwhile)
        if bad_ended and self.first_bad is None:
            self.first_bad = time.monotonic()

    def _weight(self, revision: str) -> int:
        path = f"/api/v1/namespaces/{self._settings.namespace}/configmaps/{self._settings.agent}-routing"
        table = json.loads((self._api.get(path) or {}).get("data", {}).get("routing.json", '{"arms": []}'))
        return sum(arm["weight"] for arm in table["arms"] if arm["revision"] == revision)

    def _count(self, revision: str | None) -> float:
        """Adds up what every policy server opened since the first look, pod by pod: arms come and go with their
        counters. Returns the episodes that the revision has ended."""
        opened: dict[str, float] = {}
        bad_opened = bad_ended = 0.0
        for item in episode_counters(self._api, self._settings.namespace, self._settings.agent):
            is_bad = item.labels.get("revision") == revision
            if item.metric == "learnloop_episodes_opened_total":
                opened[item.pod] = opened.get(item.pod, 0.0) + item.value
                bad_opened += item.value if is_bad else 0.0
            elif item.metric == "learnloop_episodes_ended_total" and is_bad:
                bad_ended += item.value if item.labels.get("outcome") != "withdrawn" else 0.0
        before = opened if self._opened is None else self._opened
        self._meanwhile += sum(max(0.0, count - before.get(name, 0.0)) for name, count in opened.items())
        self._bad_opened = max(self._bad_opened, bad_opened)
        self._opened = {**before, **opened}
        return bad_ended
