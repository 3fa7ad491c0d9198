"""Rules for a pod of the NSA/CISA Kubernetes Hardening Guide (1.2) and section 5 of the CIS Kubernetes Benchmark.

One function for the chart's pods and for those that the operator makes. SECURITY.md has the table of the items.
"""

import re
from collections.abc import Iterator
from typing import Any

from learnloop_operator.core.plan import KubeObject

# https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"}
VOLUMES |= {"secret"}
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostAliases")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def flaws(template: KubeObject, *, probed: bool) -> Iterator[str]:
    """Sentences, one for each item that the pod misses: `WHERE: WHAT`, where WHERE is `pod` or a container's name.

    Args:
        template: core/v1 PodTemplateSpec or Pod.
        probed: it keeps running, so its containers need probes.
    """
    pod = template["spec"]
    yield from (f"pod: {what}" for what in _pod(pod))
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        for what in _container(container, pod.get("securityContext", {})):
            yield f"{container['name']}: {what}"
    if probed:
        for container in pod["containers"]:
            yield from (f"{container['name']}: no {probe}" for probe in PROBES if probe not in container)


def _pod(pod: KubeObject) -> Iterator[str]:
    yield from (field for field in HOST_FIELDS if pod.get(field))
    if pod.get("automountServiceAccountToken") is not False and not pod.get("serviceAccountName"):
        yield "a token of the account that everybody has"
    if "automountServiceAccountToken" not in pod:
        yield "automountServiceAccountToken is left to the account"
    for volume in pod.get("volumes", ()):
        if kinds := set(volume) - {"name"} - VOLUMES:
            yield f"volume {', '.join(sorted(kinds))}"
        for source in volume.get("projected", {}).get("sources", ()):
            token = source.get("serviceAccountToken")
            if token is not None and not token.get("audience"):
                yield "a projected token for the API server"


def _container(container: KubeObject, pod_security: KubeObject) -> Iterator[str]:
    security: dict[str, Any] = {**pod_security, **container.get("securityContext", {})}
    if security.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not set"
    if not security.get("runAsUser"):
        yield "no user by number"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    if security.get("readOnlyRootFilesystem") is not True:
        yield "the root file system can be written to"
    if security.get("allowPrivilegeEscalation") is not False or security.get("privileged"):
        yield "may gain privileges"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield "has capabilities"
    if any("hostPort" in port for port in container.get("ports", ())):
        yield "a port of the node"
    yield from _resources(container.get("resources", {}))
    if flaw := _image(container["image"]):
        yield flaw


def _resources(resources: KubeObject) -> Iterator[str]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    yield from (f"no request of {name}" for name in ("cpu", "memory") if name not in {**limits, **requests})
    if "memory" not in limits:
        yield "no limit of memory"


def _image(image: str) -> str:
    """Why an image may be another one tomorrow."""
    name, _, digest = image.partition("@")
    if digest:
        return "" if DIGEST.fullmatch(digest) else f"image {image}: no digest"
    tag = name.rpartition("/")[2].partition(":")[2]
    return "" if tag and tag != "latest" else f"image {image}: no version"
