"""The arms that users get by a ModelDeployment's routing, in both modes, and must never get."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from learnloop_operator.rollout.state.snapshot import LiveRouting


def stable_of(routing: LiveRouting) -> str | None:
    """The stable arm by the table; None while there is none."""
    table = routing.table
    return next((arm.revision for arm in table.arms if arm.role == "stable"), None) if table else None


def shares(routing: LiveRouting, now: datetime) -> dict[str, int]:
    """Percent of new episodes by revision. In gateway mode the route draws; a server that the table does not list
    refuses, one whose table has expired sends to stable, and so does an agent that was refused."""
    table, stable = routing.table, stable_of(routing)
    if table is None or stable is None:
        return {}
    listed = {arm.revision: arm.weight for arm in table.arms}
    drawn = listed if routing.route is None else routing.route.weights
    others = {revision: share for revision, share in drawn.items() if revision in listed and revision != stable}
    if table.expired(now):
        others = dict.fromkeys(others, 0)
    return {stable: 100 - sum(others.values()), **others}


@dataclass(slots=True)
class Users:
    """Looks at the routing after every write of it."""

    condemned: dict[str, str] = field(default_factory=dict)
    """Revisions that a route or a table in force had a verdict on, and when it was given."""
    named: set[str] = field(default_factory=set)
    """Revisions that the route (service mode: the table) led to at the last look."""
    left: dict[str, str] = field(default_factory=dict)
    """Guests that left an experiment, and when it had begun."""

    def wronged(self, routing: LiveRouting, status: Mapping[str, Any], now: datetime) -> str:
        """The fault that users meet now; "" without one.

        No arm except stable (and the one that served before it) plays without a dead man's switch; none that was
        condemned ever plays again, unless a later rollout tries it again; no guest that left an experiment comes back
        to it; the route leads to no server that refuses.
        """
        if back := self._back(routing, status):
            return f"{back} left the experiment and is back"
        for block in routing.verdicts():
            self.condemned[block.revision] = block.at
        playing = {revision for revision, share in shares(routing, now).items() if share}
        began = str(status.get("rolloutStartedAt", ""))
        for revision in sorted(playing):
            if self.condemned.get(revision, "") > began:
                return f"{revision} was condemned and plays again"
        trusted = {stable_of(routing), (status.get("previous") or {}).get("revision")}
        if routing.table is None or not playing:
            return ""
        if playing - trusted and not routing.table.expires_at:
            return f"{sorted(playing - trusted)} play without a dead man's switch"
        drawn = {revision for revision, share in routing.route.weights.items() if share} if routing.route else set()
        refusing = sorted(drawn - {arm.revision for arm in routing.table.arms})
        return f"the route leads to {refusing}, which the table does not list" if refusing else ""

    def _back(self, routing: LiveRouting, status: Mapping[str, Any]) -> str:
        listed = {arm.revision for arm in routing.table.arms} if routing.table else set()
        before, self.named = self.named, set(routing.route.weights) if routing.route else listed
        experiment = status.get("experiment") or {}
        if experiment.get("phase") not in ("Running", "Won"):
            return ""
        began, hosts = str(experiment.get("startedAt")), 1 if experiment.get("step") is None else 2
        guests = {arm["revision"] for arm in experiment.get("arms", ())[hosts:]}
        self.left |= dict.fromkeys((before - self.named) & guests, began)
        return next((item for item in sorted(self.named & guests) if self.left.get(item) == began), "")
