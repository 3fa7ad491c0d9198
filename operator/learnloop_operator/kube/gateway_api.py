"""Status of a route, as the Gateway API's controller reports it."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from learnloop_api.kinds.model_deployment import GatewayRef
from learnloop_operator.kube.cached_reads import Reader
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.kinds import GATEWAY, GATEWAY_CLASS

MIRROR_FEATURE = "HTTPRouteRequestMirror"
PERCENT_FEATURE = "HTTPRouteRequestPercentageMirror"
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


class Mirroring(NamedTuple):
    """Missing features of a gateway for shadow steps, each in a sentence; "" for what it can."""

    problem: str = ""
    """Reason why it copies nothing."""
    percent_problem: str = ""
    """Reason why it may copy every request where a share is asked."""


async def mirroring(kube: Reader, namespace: str, reference: GatewayRef | None) -> Mirroring:
    """Features of the gateway by its GatewayClass, or as the user states them.

    Gateway API, GatewayClassStatus.supportedFeatures: what an implementation does not list must not be relied on. Some
    that mirror list nothing at all, and copy every request whatever share is asked (Contour 1.33).
    """
    if reference is None:
        return Mirroring("spec.routing.gateway names none")
    if reference.request_mirror == "unsupported":
        return Mirroring("spec.routing.gateway.requestMirror says unsupported")
    if reference.request_mirror == "supported":
        text = "spec.routing.gateway.requestMirror: supported says that it copies, and not that it knows percent"
        return Mirroring(percent_problem=text)
    try:
        gateway = await kube.find(GATEWAY, reference.namespace or namespace, reference.name)
        if gateway is None:
            return Mirroring(f"Gateway {reference.name} does not exist")
        name = str((gateway.get("spec") or {}).get("gatewayClassName", ""))
        listed = _features(await kube.find(GATEWAY_CLASS, "", name))
    except KubeError as error:
        return Mirroring(f"what it can do could not be read: {error}"[:500])
    lists_not = f"GatewayClass {name} does not list {{}} in supportedFeatures"
    if MIRROR_FEATURE not in listed:
        return Mirroring(f"{lists_not.format(MIRROR_FEATURE)}; if it can, say requestMirror: supported")
    return Mirroring(percent_problem="" if PERCENT_FEATURE in listed else lists_not.format(PERCENT_FEATURE))


def _features(gateway_class: Mapping[str, Any] | None) -> Collection[str]:
    features = ((gateway_class or {}).get("status") or {}).get("supportedFeatures") or ()
    return {str(item.get("name") if isinstance(item, Mapping) else item) for item in features}
