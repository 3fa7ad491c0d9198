"""Decisions about a MemoryService: its children, what its pods wait for, and its Weaviate."""

from typing import Any, Literal

from learnloop_operator.core import allowed_pods, conditions
from learnloop_operator.core.plan import Manifest, Notice, Plan
from learnloop_operator.core.times import next_look, unready_since
from learnloop_operator.memory_services import manifests
from learnloop_operator.memory_services.manifests import network_policies
from learnloop_operator.memory_services.snapshot import MemoryServiceSnapshot

VECTOR_STORE = "VectorStoreAvailable"
LONGEST_PROBLEM = 500


def vector_store(world: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    """The condition; none where PostgreSQL does it all. While its status stays, so does its first sentence: a store
    that is away says so in many ways, and a reader learns nothing from the next."""
    if world.spec.weaviate is None:
        return []
    result: tuple[Literal["True", "False", "Unknown"], str, str]
    if world.degraded is None:
        result = (conditions.UNKNOWN, "NotAsked", "no ready pod of the service has said whether Weaviate answers")
    elif problem := world.degraded.get("vector store", "")[:LONGEST_PROBLEM]:
        meaning = "large agents are scanned, which is slower and finds the same; nothing is lost"
        result = (conditions.FALSE, "DoesNotAnswer", f"{world.spec.weaviate.url}: {problem}; {meaning}")
    else:
        result = (conditions.TRUE, "Answers", f"{world.spec.weaviate.url} takes what it is given")
    live = _live(world)
    if live is not None and live.get("status") == result[0] and world.spec.weaviate.url in str(live.get("message")):
        result = (result[0], result[1], str(live["message"]))
    return [conditions.condition(VECTOR_STORE, *result, world.generation)]


def vector_news(world: MemoryServiceSnapshot, found: list[dict[str, Any]]) -> tuple[Notice, ...]:
    """An event when it goes, and one when it is back."""
    before = (_live(world) or {}).get("status")
    for item in found:
        if item["status"] == conditions.FALSE and before != conditions.FALSE:
            return (Notice("Warning", "VectorStoreAway", item["message"]),)
        if item["status"] == conditions.TRUE and before == conditions.FALSE:
            return (Notice("Normal", "VectorStoreBack", item["message"]),)
    return ()


def _live(world: MemoryServiceSnapshot) -> Any:
    return next((item for item in world.status.get("conditions") or () if item.get("type") == VECTOR_STORE), None)


NOW_AND_THEN = 30.0


def decide(world: MemoryServiceSnapshot) -> Plan:
    """Children first, then what they report. Deletion is the garbage collector's: nothing outside must be undone."""
    if world.deleting:
        return Plan(status=world.status)
    spec = world.spec
    if (spec.storage is None) == (spec.dsn_secret_ref is None):
        return _hold(world, "InvalidSpec", "spec: set exactly one of storage and dsnSecretRef", after=None)
    stray = _not_allowed(world)
    if stray:
        return _hold(world, allowed_pods.REASON, stray, after=None)
    children: list[Manifest] = [manifests.budgets(world), *network_policies(world), manifests.account(world)]
    if spec.storage is not None:
        if world.database is None:
            children.append(manifests.credentials(world))
        children += manifests.database(world, spec.storage)
    if world.server is None or f'"{world.audit_name}" not found' in (world.complaint or ""):
        children.append(manifests.audit_key(world))
    children += manifests.server(world)
    return _report(world, tuple(children))


def _report(world: MemoryServiceSnapshot, children: tuple[Manifest, ...]) -> Plan:
    ready = _ready(world.server)
    credentials = {"name": world.credentials_name} if world.spec.storage is not None else None
    fields: dict[str, Any] = {"url": world.url, "credentials": credentials, "auditKey": {"name": world.audit_name}}
    if world.spec.suspend:
        state = _status(
            world, "Suspended", "suspended: no pods, the data stays", ready=False, progressing=False, **fields
        )
        return Plan(status=state, apply=children, events=_news(world, "Suspended", "scaled to 0"))
    if ready >= world.replicas and _settled(world.server):
        message = f"{ready} of {world.replicas} pods are ready at {world.url}"
        if any(item["status"] == conditions.FALSE for item in vector_store(world)):
            message += "; Weaviate does not answer, large agents are scanned"
        state = _status(world, "Ready", message, ready=True, progressing=False, **fields)
        events = (*_news(world, "Ready", message), *vector_news(world, vector_store(world)))
        # Nothing in the cluster changes when a Weaviate goes: only asking tells.
        after = NOW_AND_THEN if world.spec.weaviate else None
        return Plan(status=state, apply=children, events=events, requeue_after=after)
    message = f"{ready} of {world.replicas} pods are ready"
    if world.complaint:
        message = f"{message}; {world.complaint}"
        dsn = world.spec.dsn_secret_ref
        if dsn and f'"{dsn.name}" not found' in world.complaint:
            message += ": create this Secret, or correct spec.dsnSecretRef"
    state = _status(world, "Starting", message, ready=False, progressing=True, **fields)
    again = next_look(unready_since(world.server), world.now)
    return Plan(status=state, apply=children, requeue_after=again)


def _hold(world: MemoryServiceSnapshot, reason: str, message: str, *, after: float | None) -> Plan:
    """Hold everything but the budgets of its agents: running pods read them again."""
    state = _status(world, reason, message, ready=False, progressing=False, stalled=True)
    events = _news(world, reason, message, "Warning")
    return Plan(status=state, apply=(manifests.budgets(world),), events=events, requeue_after=after)


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
    triplet = conditions.ready_triplet(
        ready=ready,
        progressing=progressing,
        stalled=stalled,
        reason=reason,
        message=message,
        generation=world.generation,
    )
    selector = ",".join(f"{key}={value}" for key, value in sorted(world.selector(manifests.SERVER).items()))
    state = {
        **world.status,
        **fields,
        "observedGeneration": world.generation,
        "phase": reason,
        "replicas": int(((world.server or {}).get("status") or {}).get("replicas") or 0),
        "readyReplicas": _ready(world.server),
        "selector": selector,
        "conditions": conditions.merge(
            world.status.get("conditions") or (),
            [*triplet, *vector_store(world)],
            world.time,
        ),
    }
    return {key: value for key, value in state.items() if value is not None}


def _news(world: MemoryServiceSnapshot, reason: str, message: str, type_: Any = "Normal") -> tuple[Notice, ...]:
    live = world.status.get("conditions") or ()
    previous = any(item.get("type") == "Ready" and item.get("reason") == reason for item in live)
    return () if previous else (Notice(type_, reason, message),)


def _ready(deployment: Manifest | None) -> int:
    return int(((deployment or {}).get("status") or {}).get("readyReplicas") or 0)


def _settled(deployment: Manifest | None) -> bool:
    """The rollout of the newest template is over."""
    if deployment is None:
        return False
    status, wanted = deployment.get("status") or {}, int((deployment.get("spec") or {}).get("replicas") or 0)
    observed = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    return observed and int(status.get("updatedReplicas") or 0) >= wanted
