"""What users get of a ModelDeployment's routing, in both modes, and what they must never get."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from learnloop_operator.core.rollout.world import RoutingWorld


def stable_of(routing: RoutingWorld) -> str | None:
    """The stable arm by the table; None while there is none."""
    table = routing.table
    return next((arm.revision for arm in table.arms if arm.role == "stable"), None) if table else None


def shares(routing: RoutingWorld, now: datetime) -> dict[str, int]:
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

    def wronged(self, routing: RoutingWorld, status: Mapping[str, Any], now: datetime) -> str:
        """What is wrong for users now; "" when nothing is.

        No arm beside stable (and the one that served before it) plays without a dead man's switch; none that was
        condemned ever plays again, unless a later rollout tries it anew; the route leads to no server that refuses.
        """
        for pin in routing.verdicts():
            self.condemned[pin.revision] = pin.at
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
