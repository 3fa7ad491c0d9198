"""Statuses that were decided and not written yet, and what they go on from. Lost with the process, without harm."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from learnloop_operator.core.plan import Manifest
from learnloop_operator.kube.client import without_none

REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class UnwrittenStatus:
    """The status that the next decision continues. `since`: when something first stayed unwritten."""

    status: dict[str, Any]
    since: datetime
    written: Any
    """The live status it goes on from."""


class UnwrittenStatuses:
    """One for each object at most."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, UnwrittenStatus] = OrderedDict()

    def of(self, live: Manifest) -> UnwrittenStatus | None:
        """The draft that goes on from the live status; None when there is none, or anybody has written since."""
        draft = self._kept.get(live["metadata"]["uid"])
        return draft if draft is not None and draft.written == live.get("status") else None

    def keep(self, live: Manifest, status: Manifest, now: datetime) -> None:
        """Remember a status that was not written; one that says what is written is none."""
        if without_none(status) == live.get("status"):
            self.drop(live)
            return
        before = self.of(live)
        uid = live["metadata"]["uid"]
        self._kept[uid] = UnwrittenStatus(dict(status), before.since if before else now, live.get("status"))
        self._kept.move_to_end(uid)
        while len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)

    def drop(self, live: Manifest) -> None:
        """Everything is written."""
        self._kept.pop(live["metadata"]["uid"], None)
