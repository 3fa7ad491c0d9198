"""Decisions about a MemoryService: its children, and what its pods wait for."""

from typing import Any

from learnloop_operator.core import allowed_pods, conditions, times
from learnloop_operator.core.plan import Manifest, Notice, Plan
from learnloop_operator.memory_services.service_children import (
    SERVER,
    account,
    budgets,
    credentials,
    database,
    network_policies,
    server,
)
from learnloop_operator.memory_services.service_snapshot import MemoryServiceSnapshot


def decide(world: MemoryServiceSnapshot) -> Plan:
    """Children first, then what they report. Deletion is the garbage collector's: nothing outside must be undone."""
    if world.deleting:
        return Plan(status=world.status)
    spec = world.spec
    stray = _not_allowed(world)
    if stray:
        return _hold(world, allowed_pods.REASON, stray)
    children: list[Manifest] = [
        budgets(world),
        *network_policies(world),
        account(world),
    ]
    if spec.storage is not None:
        if world.database is None:
            children.append(credentials(world))
        children += database(world, spec.storage)
    children += server(world)
    return _report(world, tuple(children))


def _report(world: MemoryServiceSnapshot, children: tuple[Manifest, ...]) -> Plan:
    ready = _ready(world.server)
    credentials = {"name": world.credentials_name} if world.spec.storage is not None else None
    fields: dict[str, Any] = {"url": world.url, "credentials": credentials}
    if world.spec.suspend:
        state = _status(
            world, "Suspended", "suspended: no pods, the data stays", ready=False, progressing=False, **fields
        )
        return Plan(status=state, apply=children, events=_news(world, "Suspended", "scaled to 0"))
    if ready >= world.replicas and _settled(world.server):
        message = f"{ready} of {world.replicas} pods are ready at {world.url}"
        state = _status(world, "Ready", message, ready=True, progressing=False, **fields)
        return Plan(status=state, apply=children, events=_news(world, "Ready", message))
    message = f"{ready} of {world.replicas} pods are ready"
    if world.complaint:
        message = f"{message}; {world.complaint}"
        dsn = world.spec.dsn_secret_ref
        if dsn and f'"{dsn.name}" not found' in world.complaint:
            message += ": create this Secret, or correct spec.dsnSecretRef"
    state = _status(world, "Starting", message, ready=False, progressing=True, **fields)
    again = times.next_look(times.unready_since(world.server), world.now)
    return Plan(status=state, apply=children, requeue_after=again)


def _hold(world: MemoryServiceSnapshot, reason: str, message: str) -> Plan:
    """Hold everything but the budgets of its agents: running pods read them again."""
    state = _status(world, reason, message, ready=False, progressing=False, stalled=True)
    return Plan(status=state, apply=(budgets(world),), events=_news(world, reason, message, "Warning"))


def _not_allowed(world: MemoryServiceSnapshot) -> str:
    spec, rules = world.spec, world.pod_rules
    volume = spec.embedder.volume if spec.embedder else None
    return (
        allowed_pods.forbidden(spec.pod, "spec.pod", rules)
        or (allowed_pods.forbidden(spec.storage.pod, "spec.storage.pod", rules) if spec.storage else "")
        or (allowed_pods.forbidden_volume(volume, "spec.embedder.volume", rules) if volume else "")
    )


def _status(
    world: MemoryServiceSnapshot,
    reason: str,
    message: str,
    *,
    ready: bool,
    progressing: bool,
    stalled: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    triplet = conditions.ready_triplet(world, reason, message, ready=ready, progressing=progressing, stalled=stalled)
    selector = ",".join(f"{key}={value}" for key, value in sorted(world.selector(SERVER).items()))
    state = {
        **world.status,
        **fields,
        "observedGeneration": world.generation,
        "phase": reason,
        "replicas": int(((world.server or {}).get("status") or {}).get("replicas") or 0),
        "readyReplicas": _ready(world.server),
        "selector": selector,
        "conditions": conditions.merge(world.status.get("conditions") or (), triplet, world.time),
    }
    return {key: value for key, value in state.items() if value is not None}


def _news(world: MemoryServiceSnapshot, reason: str, message: str, type_: Any = "Normal") -> tuple[Notice, ...]:
    live = conditions.find(world.status, "Ready").get("reason")
    return () if live == reason else (Notice(type_, reason, message),)


def _ready(deployment: Manifest | None) -> int:
    return int(((deployment or {}).get("status") or {}).get("readyReplicas") or 0)


def _settled(deployment: Manifest | None) -> bool:
    """The rollout of the newest template is over."""
    if deployment is None:
        return False
    status, wanted = deployment.get("status") or {}, int((deployment.get("spec") or {}).get("replicas") or 0)
    observed = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    return observed and int(status.get("updatedReplicas") or 0) >= wanted
