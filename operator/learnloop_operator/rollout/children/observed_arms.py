"""Reads arms out of live Deployments and pods. Whatever is missing or odd in them reads as 'not ready'."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from learnloop_api.kinds.base import PodOptions
from learnloop_api.names import LABEL_REVISION
from learnloop_operator.core.ownership import controller_uid
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.pod_trouble import containers, creation_trouble, held_up, last_words
from learnloop_operator.core.poll_interval import unready_since
from learnloop_operator.rollout.children.manifests import ANNOTATION_ARM
from learnloop_operator.rollout.model.arm_language_model import Spoken, read_spoken
from learnloop_operator.rollout.model.snapshot import ArmWorld, Model


def arms(deployments: Iterable[Manifest], pods: Iterable[Manifest]) -> dict[str, ArmWorld]:
    """Arms by revision, as their Deployments and pods have them."""
    by_revision: dict[str, list[Manifest]] = {}
    for pod in pods:
        by_revision.setdefault(_revision(pod), []).append(pod)
    return {
        _revision(deployment): _arm(deployment, by_revision.get(_revision(deployment), []))
        for deployment in deployments
        if _revision(deployment)
    }


def _arm(deployment: Manifest, pods: list[Manifest]) -> ArmWorld:
    status = deployment.get("status") or {}
    model, options, spoken = _identity(deployment)
    return ArmWorld(
        ready=int(status.get("readyReplicas") or 0),
        replicas=int(status.get("replicas") or 0),
        restarts=max((int(item.get("restartCount") or 0) for pod in pods for item in _containers(pod)), default=0),
        message=_message(deployment, pods)[:900],
        pod=options,
        model=model,
        spoken=spoken,
        unready_since=unready_since(deployment),
    )


def _message(deployment: Manifest, pods: list[Manifest]) -> str:
    """The pod's own last sentence first, then why it could not start, then why there is none."""
    newest_first = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    for read in (last_words, held_up):
        for pod in newest_first:
            if text := read(pod.get("status") or {}):
                return text
    return creation_trouble(deployment)


def _containers(pod: Manifest) -> list[Mapping[str, Any]]:
    return containers(pod.get("status") or {})


def _revision(item: Manifest) -> str:
    return str((item["metadata"].get("labels") or {}).get(LABEL_REVISION, ""))


def _identity(deployment: Manifest) -> tuple[Model | None, PodOptions | None, Spoken | None]:
    text = (deployment["metadata"].get("annotations") or {}).get(ANNOTATION_ARM)
    try:
        body = json.loads(text or "null")
        model, pod = body["model"], PodOptions.model_validate(body["pod"])
        found = Model(_revision(deployment), str(model["uri"]), model.get("sha256"))
        return found, pod, read_spoken(body.get("language"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, None, None


def pods_of_arms(
    pods: Iterable[Manifest], replica_sets: Iterable[Manifest], children: Iterable[Manifest]
) -> list[Manifest]:
    """Those that the arms' own Deployments made. A stranger's pod may carry all labels of an arm.

    Without any ReplicaSet of theirs, no controller of Deployments has looked at the arms yet, and labels decide.
    """
    arms = {str(child["metadata"]["uid"]) for child in children if child["kind"] == "Deployment"}
    makers = {str(item["metadata"]["uid"]) for item in replica_sets if controller_uid(item) in arms}
    return [pod for pod in pods if not makers or controller_uid(pod) in makers]
