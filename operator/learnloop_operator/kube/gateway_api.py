"""Status of a route, as the Gateway API's controller reports it."""

from collections.abc import Mapping
from typing import Any

_NEEDED = ("Accepted", "ResolvedRefs")


def route_problem(route: Mapping[str, Any] | None) -> str:
    """Reason why the HTTPRoute is not in force as it stands, in one sentence; "" when it is or was not written yet.

    A route is good as soon as one parent has accepted it, resolved its references and left nothing of it out (Gateway
    API, RouteParentStatus).
    """
    if route is None:
        return ""
    parents = (route.get("status") or {}).get("parents") or ()
    if not parents:
        return "no Gateway controller has looked at it; spec.routing.gateway must name an existing Gateway"
    problems = [_first_problem(parent) for parent in parents]
    return "" if "" in problems else problems[0]


def _first_problem(parent: Mapping[str, Any]) -> str:
    conditions = {item.get("type"): item for item in parent.get("conditions") or ()}
    for type_ in _NEEDED:
        item = conditions.get(type_)
        if item is None or item.get("status") != "True":
            text = item or {"reason": "Unknown", "message": f"{type_} has not been reported"}
            return f"{text.get('reason')}: {text.get('message') or 'no message'}"[:500]
    partly = conditions.get("PartiallyInvalid") or {}
    if partly.get("status") == "True":
        return f"a part of it was left out: {partly.get('reason')}: {partly.get('message') or 'no message'}"[:500]
    return ""
