"""The Job that one case runs in."""

import random
from typing import Any

from learnloop_api import names
from learnloop_dataplane.sandbox.run_case import VARIABLE, RunCase

START_SECONDS = 60
"""That a pod may take until its container runs."""
KEPT_SECONDS = 120
"""That the API server keeps a finished Job which nobody deletes."""
LABEL = "learnloop.dev/sandbox"
USERS = (200_000, 265_535)
"""One for each Job at random: the kernel counts the processes of a user over all pods of a node."""


def manifest(name: str, image: str, case: RunCase) -> dict[str, Any]:
    """No token, no root, no capability, nothing to write to but a little memory, and an end.

    Raises:
        TooLong: the case does not fit.
    """
    user = random.SystemRandom().randint(*USERS)
    limits = {"cpu": "1", "memory": f"{case.memory_megabytes + 128}Mi", "ephemeral-storage": "16Mi"}
    container = {
        "name": "run",
        "image": image,
        "command": ["python", "-I", "-B", "-m", "learnloop_dataplane.sandbox.limited_run"],
        "env": [{"name": VARIABLE, "value": case.written()}],
        "resources": {"limits": limits, "requests": {**limits, "cpu": "100m"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": case.seconds + START_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {LABEL: "case"}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": case.seconds + START_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {
                    "labels": {**names.NO_SIDECAR_LABELS, LABEL: "case"},
                    "annotations": dict(names.NO_SIDECAR),
                },
                "spec": pod,
            },
        },
    }
