"""Deployments and Jobs as their controllers in a cluster handle them: which pods there are, and the status that the
operator reads."""

import hashlib
import json
import secrets
import string
from typing import Any

from learnloop_local.addresses import is_ready
from learnloop_local.store import Object, Store, now
from learnloop_operator.core.plan import controller_uid
from learnloop_operator.kube import kinds


def look(store: Store) -> None:
    """One look at all of them."""
    pods = store.every(kinds.POD)
    for kind, look_at in ((kinds.DEPLOYMENT, _deployment), (kinds.JOB, _job)):
        for body in store.every(kind):
            uid = body["metadata"]["uid"]
            try:
                look_at(store, body, [pod for pod in pods if controller_uid(pod) == uid])
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                problem = {"type": "ReplicaFailure", "status": "True", "message": f"spec: {error!r}: correct it"}
                store.status(kind, body, {"conditions": [problem]})


def _deployment(store: Store, body: Object, pods: list[Object]) -> None:
    """Pods of the present template first; those of an older one go when these are ready."""
    spec, metadata = body["spec"], body["metadata"]
    wanted, mark = int(spec.get("replicas", 1)), _mark(spec["template"])
    present = [pod for pod in pods if _at_work(pod) and f"-{mark}-" in pod["metadata"]["name"]]
    older = [pod for pod in pods if _at_work(pod) and pod not in present]
    for _ in range(wanted - len(present)):
        _make(store, body, spec["template"], f"{metadata['name']}-{mark}-{_random(5)}")
    for pod in present[wanted:]:
        _delete(store, pod)
    ready = sum(map(is_ready, present))
    if ready >= wanted:
        for pod in older:
            _delete(store, pod)
    status = {
        "observedGeneration": metadata["generation"],
        "replicas": wanted,
        "updatedReplicas": wanted,
        "readyReplicas": ready,
        "availableReplicas": ready,
    }
    ends = {"Available": ready >= wanted, "Progressing": True}
    store.status(kinds.DEPLOYMENT, body, {**status, "conditions": _conditions(body, ends)})


def _job(store: Store, body: Object, pods: list[Object]) -> None:
    """One pod at a time, again after a failure, up to spec.backoffLimit times."""
    spec, before = body["spec"], body.get("status") or {}
    if spec.get("suspend") or _ended(body):
        return
    failed = [pod for pod in pods if _phase(pod) == "Failed"]
    succeeded = [pod for pod in pods if _phase(pod) == "Succeeded"]
    over = len(failed) > int(spec.get("backoffLimit", 6))
    if not succeeded and not over and len(failed) == len(pods):
        _make(store, body, spec["template"], f"{body['metadata']['name']}-{_random(5)}")
    status: Object = {"startTime": before.get("startTime") or now(), "failed": len(failed), "succeeded": len(succeeded)}
    ends = {"Complete": bool(succeeded), "Failed": over}
    if any(ends.values()):
        words = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
        status |= {"conditions": _conditions(body, ends, words if over else {}), "completionTime": now()}
    store.status(kinds.JOB, body, status)


def _make(store: Store, owner: Object, template: Object, name: str) -> None:
    """A pod of the template that `owner` controls."""
    metadata, spec = owner["metadata"], json.loads(json.dumps(template["spec"]))
    spec.setdefault("restartPolicy", "Always" if owner["kind"] == "Deployment" else "Never")
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"]}
    reference |= {"uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True}
    about = template.get("metadata") or {}
    body = {
        "metadata": {
            "name": name,
            "labels": dict(about.get("labels") or {}),
            "annotations": dict(about.get("annotations") or {}),
            "ownerReferences": [reference],
        },
        "spec": spec,
    }
    store.create(kinds.POD, metadata["namespace"], body)


def _delete(store: Store, pod: Object) -> None:
    store.delete(kinds.POD, pod["metadata"]["namespace"], pod["metadata"]["name"], {})


def _mark(template: Object) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def _random(length: int) -> str:
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(length))


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _at_work(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def _ended(body: Object) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(item["type"] in ("Complete", "Failed") and item["status"] == "True" for item in conditions)


def _conditions(body: Object, wanted: dict[str, bool], words: Object | None = None) -> list[Object]:
    """Each with the time when it last changed."""
    before = {item["type"]: item for item in (body.get("status") or {}).get("conditions") or ()}
    result: list[Any] = []
    for type_, true in wanted.items():
        status, old = "True" if true else "False", before.get(type_, {})
        since = old["lastTransitionTime"] if old.get("status") == status else now()
        result.append({"type": type_, "status": status, "lastTransitionTime": since, **((words or {}) if true else {})})
    return result
