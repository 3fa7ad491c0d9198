"""The pages' reads of the data plane: a few named ones, by the command line's own client."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from learnloop_operator.cli.console.orders import NAME
from learnloop_operator.cli.data_plane import DataPlaneAccess
from learnloop_operator.cli.objects import CommandError

Asked = Mapping[str, str]
TRAJECTORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
PAGE, MOST_PAGES = 20, 25
MOST_RECORDS = 300
SECONDS = 15.0
READS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "rewards": ("agent", "/api/v1/rewards/history", {"agent_id": "{}", "limit": "1000"}),
    "run": ("job", "/api/v1/training/runs/{}", {}),
    "deployed": ("deployment", "/api/v1/models/{}/deployed", {"limit": "100"}),
    "progress": ("agent", "/api/v1/agents/{}/progress", {"weeks": "12"}),
    "memories": ("agent", "/api/v1/memory/entries", {"agent_id": "{}", "limit": "200"}),
}
"""Reads of one object: the field that names it, the path, and the query."""


class Records:
    """One namespace's experience, rewards, memories and audit chain."""

    def __init__(self, plane: DataPlaneAccess) -> None:
        self._plane = plane
        self._others: Mapping[str, Callable[[Asked], Any]] = {
            "episode": self._episode,
            "recall": self._recall,
            "audit": self._audit,
        }

    def read(self, what: str, asked: Asked) -> Any:
        """The answer's JSON.

        Raises:
            CommandError: no such read, a bad argument, or what the data plane refuses, in its own words.
        """
        if what in READS:
            field, path, query = READS[what]
            name = _name(asked, field)
            return self._get(path.format(name), {key: value.format(name) for key, value in query.items()})
        if what not in self._others:
            raise CommandError(f"unknown read {what[:64]!r}; the reads are {', '.join((*READS, *self._others))}")
        return self._others[what](asked)

    def _get(self, path: str, query: Asked) -> Any:
        return self._plane.ask("GET", path, query, seconds=SECONDS)

    def _recall(self, asked: Asked) -> Any:
        """The agent's recall now, with a word why for each memory. It is not logged, so looking teaches nothing."""
        agent, context = _name(asked, "agent"), asked.get("context", "")
        if not 1 <= len(context) <= 2000:
            raise CommandError("context: describe the situation in 1 to 2000 characters")
        body = {"agent_id": agent, "context": context, "k": 10, "logged": False}
        return self._plane.ask("POST", "/api/v1/memory/retrieve", body=body, seconds=SECONDS)

    def _episode(self, asked: Asked) -> Any:
        """One episode of the newest 500, step by step, and what each step was worth."""
        agent, wanted = _name(asked, "agent"), asked.get("trajectory", "")
        if not TRAJECTORY.fullmatch(wanted):
            raise CommandError(f"invalid trajectory {wanted[:64]!r}: give its id")
        query = {"agent": agent, "limit": str(PAGE)}
        for _ in range(MOST_PAGES):
            page = self._get("/api/v1/experience/trajectories", query)
            for episode in page["trajectories"]:
                if episode["trajectory_id"] == wanted:
                    return {"episode": episode, "credits": self._credits(wanted)}
            if page["next"] is None:
                break
            query["after"] = page["next"]
        raise CommandError(f"trajectory {wanted!r} is not among the newest {PAGE * MOST_PAGES} episodes of {agent}")

    def _credits(self, trajectory: str) -> Any:
        try:
            return self._get(f"/api/v1/rewards/credits/{trajectory}", {})
        except CommandError:
            # Not rewarded yet; the steps are worth looking at without.
            return None

    def _audit(self, asked: Asked) -> Any:
        """The newest records: the chain is read forwards, so from some way before its newest signature on."""
        try:
            signed = int(self._get("/api/v1/audit/checkpoint", {})["seq"])
        except CommandError:
            # Without an audit key nothing is signed, and the chain is shown from its beginning.
            signed = 0
        query = {"after": str(max(0, signed - MOST_RECORDS)), "limit": str(2 * MOST_RECORDS)}
        return self._get("/api/v1/audit/records", query)


def _name(asked: Asked, field: str) -> str:
    name = asked.get(field, "")
    if not NAME.fullmatch(name):
        raise CommandError(f"invalid {field} {name[:64]!r}: name an object")
    return name
