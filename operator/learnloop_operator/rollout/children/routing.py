"""Routing of new episodes: the table for our own servers, and the HTTPRoute for a Gateway before them."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_api.wire.routing import (
    DEAD_MAN_SECONDS,
    ROUTING_KEY,
    Arm,
    Limits,
    RoutingTable,
    arm_name,
    routing_config_map,
)
from learnloop_operator.core.plan import KubeObject, child, noted
from learnloop_operator.rollout.children import serving_arms
from learnloop_operator.rollout.judging import release_gates, shadow_step
from learnloop_operator.rollout.state.rollout_state import State
from learnloop_operator.rollout.state.snapshot import LiveRoute, LiveRouting, Snapshot

ANNOTATION_BLOCKED = f"{names.GROUP}/blocked-revision"
"""On the ConfigMap and the HTTPRoute: the verdict that goes with them. One write carries both."""

HORIZON = timedelta(seconds=DEAD_MAN_SECONDS)
RENEW_BELOW = timedelta(minutes=5)


def table_for(snapshot: Snapshot, state: State) -> RoutingTable:
    """The table for `state`: the live one when it says the same, else a new one with the next generation."""
    live = snapshot.routing.table
    arms = with_shares(snapshot, state, drawn_arms(snapshot, state))
    mirror = shadow_step.mirror_for(snapshot, state)
    mortal = mirror is not None or any(arm.role == "canary" and arm.weight for arm in arms)
    if snapshot.spec.routing.mode == "gateway":
        # The HTTPRoute draws. A table that repeated its weights would be written at every step; no server reads them.
        arms = [arm.model_copy(update={"weight": 100 if arm.role == "stable" else 0}) for arm in arms]
    expires = _expiry(live.expires_at if live else None, snapshot.cluster_now) if mortal else None
    bounds = limits(snapshot)
    text = (arms, snapshot.spec.routing.mode, expires, mirror, bounds)
    if live and text == (live.arms, live.mode, live.expires_at, live.mirror, live.limits):
        return live
    generation = max(live.generation if live else 0, snapshot.before.routing_generation or 0) + 1
    return RoutingTable(
        model_deployment=snapshot.name,
        mode=snapshot.spec.routing.mode,
        generation=generation,
        arms=arms,
        expires_at=expires,
        mirror=mirror,
        limits=bounds,
    )


def config_map(snapshot: Snapshot, state: State, table: RoutingTable) -> KubeObject:
    """The ConfigMap: table and verdict in one write."""
    return child(
        snapshot.object,
        api_version="v1",
        kind="ConfigMap",
        name=routing_config_map(snapshot.name),
        labels=serving_arms.labels(snapshot),
        annotations=write_blocked(state.blocked),
        data={ROUTING_KEY: table.to_json()},
    )


def lowers(live: LiveRoute | None, wanted: Sequence[Arm]) -> bool:
    """Whether an arm other than the one that is to be stable leaves the route, or gets less by `wanted`."""
    left = {arm.revision: 100 if arm.role == "stable" else arm.weight for arm in wanted}
    return live is not None and any(left.get(revision, -1) < weight for revision, weight in live.weights.items())


def drawn_arms(snapshot: Snapshot, state: State) -> list[Arm]:
    """Arms with their shares of new episodes in `state`, stable first."""
    if state.stable is None:
        # Its servers answer only the suites that name it: new episodes have no arm.
        first = snapshot.desired.model
        return (
            [_arm(snapshot, first.revision, "canary", 0)]
            if first and release_gates.first_at_gates(snapshot, state)
            else []
        )
    shares = state.experiment.shares() if state.experiment else {}
    left = 100 - state.weight - sum(shares.values())
    arms = [_arm(snapshot, state.stable.revision, "stable", left)]
    arms += [_arm(snapshot, revision, "canary", weight) for revision, weight in shares.items()]
    if state.canary and state.step is not None:
        arms.append(_arm(snapshot, state.canary.revision, "canary", state.weight))
    if state.previous:
        # No new episodes, but the ones under way may end where they began.
        arms.append(_arm(snapshot, state.previous.revision, "canary", 0))
    return arms


def _arm(snapshot: Snapshot, revision: str, role: str, weight: int) -> Arm:
    url = f"{snapshot.scheme}://{arm_name(snapshot.name, revision)}.{snapshot.namespace}.svc:{names.PORT_SERVING}"
    return Arm.model_validate({"revision": revision, "role": role, "weight": weight, "url": url})


def _expiry(current: datetime | None, now: datetime) -> datetime:
    if current is not None and current - now >= RENEW_BELOW:
        return current
    return (now + HORIZON).replace(microsecond=0)


def read(config_map: dict[str, object] | None) -> LiveRouting:
    """Reads the live ConfigMap; an invalid table counts as missing."""
    if not config_map:
        return LiveRouting()
    data, metadata = config_map.get("data"), config_map.get("metadata")
    text = data.get(ROUTING_KEY) if isinstance(data, dict) else None
    return LiveRouting(_table(text), read_blocked(metadata))


def read_blocked(metadata: object) -> BlockedRevision | None:
    """The verdict in an object's metadata; one that is none counts as none."""
    return noted(metadata, ANNOTATION_BLOCKED, BlockedRevision)


def write_blocked(block: BlockedRevision | None) -> dict[str, str]:
    """Annotations of what carries the verdict."""
    return {ANNOTATION_BLOCKED: json.dumps(block.to_kube(), sort_keys=True)} if block else {}


def _table(text: object) -> RoutingTable | None:
    try:
        return RoutingTable.model_validate_json(text) if isinstance(text, str) else None
    except ValueError:
        return None


# What part of the decisions that a ModelDeployment may give is each server's.


LEAST_PERCENT = 10
"""An arm without new episodes still ends those that were opened on it."""


def limits(snapshot: Snapshot) -> Limits | None:
    """The limits as the table has them."""
    wanted = snapshot.spec.decision_limits
    return Limits.model_validate(wanted.model_dump()) if wanted else None


def with_shares(snapshot: Snapshot, state: State, arms: Sequence[Arm]) -> list[Arm]:
    """The arms, each with the part that one of its servers may give; all parts of all servers make 1."""
    if snapshot.spec.decision_limits is None:
        return list(arms)
    parts = {arm.revision: max(LEAST_PERCENT, arm.weight) for arm in arms}
    whole = sum(parts.values())
    return [
        arm.model_copy(
            update={
                "share": round(parts[arm.revision] / whole / max(1, state.replicas(snapshot.spec, arm.revision)), 6)
            }
        )
        for arm in arms
    ]


# A route (gateway.networking.k8s.io/v1): its last rule draws the arm of a new episode by weight; the rules before it
# bring a request that names its arm in `x-learnloop-arm` to that arm. A withdrawn arm has neither.


_ANY_PATH = {"path": {"type": "PathPrefix", "value": "/"}}


def http_route(snapshot: Snapshot, table: RoutingTable, block: BlockedRevision | None = None) -> dict[str, Any] | None:
    """The route and the verdict that goes with it; None while no arm serves, for without a backend it would answer 500.

    `table`: with the weights that are to be drawn by. Defaults of the Gateway API are spelt out, so that the live
    object equals the manifest.
    """
    gateway = snapshot.spec.routing.gateway
    if gateway is None or not table.arms:
        return None
    parent: dict[str, Any] = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway.name}
    if gateway.namespace:
        parent["namespace"] = gateway.namespace
    if gateway.section_name:
        parent["sectionName"] = gateway.section_name
    by_header = [
        {
            "matches": [{**_ANY_PATH, "headers": [{"type": "Exact", "name": names.HEADER_ARM, "value": arm.revision}]}],
            "backendRefs": [_backend(snapshot, arm.revision, 1)],
        }
        for arm in table.arms
    ]
    by_weight = {
        "matches": [_ANY_PATH],
        "backendRefs": [_backend(snapshot, arm.revision, arm.weight) for arm in table.arms],
    }
    spec: dict[str, Any] = {"parentRefs": [parent], "rules": [*by_header, by_weight]}
    if snapshot.spec.routing.hostnames:
        spec["hostnames"] = list(snapshot.spec.routing.hostnames)
    return child(
        snapshot.object,
        api_version="gateway.networking.k8s.io/v1",
        kind="HTTPRoute",
        name=snapshot.name,
        labels=serving_arms.labels(snapshot),
        annotations=write_blocked(block),
        spec=spec,
    )


def read_route(route: Mapping[str, Any] | None, name: str) -> LiveRoute | None:
    """Reads the live route of the ModelDeployment `name`, as far as we wrote it."""
    if route is None:
        return None
    weights: dict[str, int] = {}
    rules = (route.get("spec") or {}).get("rules") or []
    for rule in rules:  # the last one is the draw; an arm that only the others name has weight 0
        for item in rule.get("backendRefs") or ():
            weights[str(item.get("name"))] = int(item.get("weight", 1)) if rule is rules[-1] else 0
    prefix = arm_name(name, "")
    arms = {backend.removeprefix(prefix): weight for backend, weight in weights.items() if backend.startswith(prefix)}
    return LiveRoute(arms, read_blocked(route.get("metadata")))


def _backend(snapshot: Snapshot, revision: str, weight: int) -> dict[str, Any]:
    return {
        "group": "",
        "kind": "Service",
        "name": arm_name(snapshot.name, revision),
        "port": names.PORT_SERVING,
        "weight": weight,
    }
