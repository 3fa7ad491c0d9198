"""What the Gateway API's controller says about a route."""

from collections.abc import Mapping
from typing import Any

from learnloop_api.kinds.model_deployment import GatewayRef
from learnloop_operator.adapters.kinds import GATEWAY, GATEWAY_CLASS
from learnloop_operator.adapters.kube_errors import KubeError
from learnloop_operator.adapters.reads import Reader

MIRROR_FEATURE = "HTTPRouteRequestMirror"
_NEEDED = ("Accepted", "ResolvedRefs")


def route_problem(route: Mapping[str, Any] | None) -> str:
    """Why the HTTPRoute carries no traffic, in one sentence; "" when it does or was not written yet.

    A route is good as soon as one parent has accepted it and resolved its references (Gateway API, RouteParentStatus).
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
            said = item or {"reason": "Unknown", "message": f"{type_} has not been reported"}
            return f"{said.get('reason')}: {said.get('message') or 'no message'}"[:500]
    return ""


async def mirror_problem(kube: Reader, namespace: str, reference: GatewayRef | None) -> str:
    """Why the gateway cannot copy requests; "" when its GatewayClass, or the user who knows it better, says it can.

    Gateway API, GatewayClassStatus.supportedFeatures: what an implementation does not list must not be relied on. Some
    that mirror list nothing at all (Contour 1.33).
    """
    if reference is None:
        return "spec.routing.gateway names none"
    if reference.request_mirror == "unsupported":
        return "spec.routing.gateway.requestMirror says unsupported"
    if reference.request_mirror == "supported":
        return ""
    try:
        gateway = await kube.find(GATEWAY, reference.namespace or namespace, reference.name)
        if gateway is None:
            return f"Gateway {reference.name} does not exist"
        name = str((gateway.get("spec") or {}).get("gatewayClassName", ""))
        found = await kube.find(GATEWAY_CLASS, "", name)
    except KubeError as error:
        return f"what it can do could not be read: {error}"[:500]
    if _can_mirror(found):
        return ""
    said = f"GatewayClass {name} does not list {MIRROR_FEATURE} in supportedFeatures"
    return f"{said}; if it can, say requestMirror: supported"


def _can_mirror(gateway_class: Mapping[str, Any] | None) -> bool:
    features = ((gateway_class or {}).get("status") or {}).get("supportedFeatures") or ()
    names = (item.get("name") if isinstance(item, Mapping) else item for item in features)
    return MIRROR_FEATURE in names
