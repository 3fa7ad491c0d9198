"""Decisions about a MemoryService: its children, and what its pods wait for."""

from typing import Any

from learnloop_operator.core import allowed_pods, conditions, plan, times
from learnloop_operator.memory_services import service_children
from learnloop_operator.memory_services.service_snapshot import MemoryServiceSnapshot


def decide(view: MemoryServiceSnapshot) -> plan.Plan:
    """Children first, then what they report. Deletion is the garbage collector's: nothing outside must be undone."""
    if view.deleting:
        return plan.Plan(status=view.status)
    spec = view.spec
    stray = _not_allowed(view)
    if stray:
        return _hold(view, allowed_pods.REASON, stray)
    children: list[plan.KubeObject] = [
        service_children.budgets(view),
        *service_children.network_policies(view),
        service_children.account(view),
    ]
    if spec.storage is not None:
        if view.database is None:
            children.append(service_children.credentials(view))
        children += service_children.database(view, spec.storage)
    children += service_children.server(view)
    return _report(view, tuple(children))


def _report(view: MemoryServiceSnapshot, children: tuple[plan.KubeObject, ...]) -> plan.Plan:
    ready = _ready(view.server)
    credentials = {"name": view.credentials_name} if view.spec.storage is not None else None
    fields: dict[str, Any] = {"url": view.url, "credentials": credentials}
    if view.spec.suspend:
        state = _status(
            view, "Suspended", "suspended: no pods, the data stays", ready=False, progressing=False, **fields
        )
        return plan.Plan(status=state, apply=children, events=_news(view, "Suspended", "scaled to 0"))
    if ready >= view.replicas and _settled(view.server):
        message = f"{ready} of {view.replicas} pods are ready at {view.url}"
        state = _status(view, "Ready", message, ready=True, progressing=False, **fields)
        return plan.Plan(status=state, apply=children, events=_news(view, "Ready", message))
    message = f"{ready} of {view.replicas} pods are ready"
    if view.complaint:
        message = f"{message}; {view.complaint}"
        dsn = view.spec.dsn_secret_ref
        if dsn and f'"{dsn.name}" not found' in view.complaint:
            message += ": create this Secret, or correct spec.dsnSecretRef"
    state = _status(view, "Starting", message, ready=False, progressing=True, **fields)
    again = times.next_look(times.unready_since(view.server), view.now)
    return plan.Plan(status=state, apply=children, requeue_after=again)


def _hold(view: MemoryServiceSnapshot, reason: str, message: str) -> plan.Plan:
    """Hold everything but the budgets of its agents: running pods read them again."""
    state = _status(view, reason, message, ready=False, progressing=False, stalled=True)
    return plan.Plan(
        status=state, apply=(service_children.budgets(view),), events=_news(view, reason, message, "Warning")
    )


def _not_allowed(view: MemoryServiceSnapshot) -> str:
    spec, rules = view.spec, view.pod_rules
    volume = spec.embedder.volume if spec.embedder else None
    return (
        allowed_pods.forbidden(spec.pod, "spec.pod", rules)
        or (allowed_pods.forbidden(spec.storage.pod, "spec.storage.pod", rules) if spec.storage else "")
        or (allowed_pods.forbidden_volume(volume, "spec.embedder.volume", rules) if volume else "")
    )


def _status(
    view: MemoryServiceSnapshot,
    reason: str,
    message: str,
    *,
    ready: bool,
    progressing: bool,
    stalled: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    triplet = conditions.ready_triplet(view, reason, message, ready=ready, progressing=progressing, stalled=stalled)
    selector = ",".join(f"{key}={value}" for key, value in sorted(view.selector(service_children.SERVER).items()))
    state = {
        **view.status,
        **fields,
        "observedGeneration": view.generation,
        "phase": reason,
        "replicas": int(((view.server or {}).get("status") or {}).get("replicas") or 0),
        "readyReplicas": _ready(view.server),
        "selector": selector,
        "conditions": conditions.merge(view.status.get("conditions") or (), triplet, view.time),
    }
    return {key: value for key, value in state.items() if value is not None}


def _news(view: MemoryServiceSnapshot, reason: str, message: str, type_: Any = "Normal") -> tuple[plan.Notice, ...]:
    live = conditions.find(view.status, "Ready").get("reason")
    return () if live == reason else (plan.Notice(type_, reason, message),)


def _ready(deployment: plan.KubeObject | None) -> int:
    return int(((deployment or {}).get("status") or {}).get("readyReplicas") or 0)


def _settled(deployment: plan.KubeObject | None) -> bool:
    """The rollout of the newest template is over."""
    if deployment is None:
        return False
    status, wanted = deployment.get("status") or {}, int((deployment.get("spec") or {}).get("replicas") or 0)
    observed = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    return observed and int(status.get("updatedReplicas") or 0) >= wanted
