"""A description of a cluster for finding out why a story or a test failed."""

import subprocess

from demo.api import Api
from demo.settings import SYSTEM_NAMESPACE

CHARACTERS = 12000
WANTED = (
    ("get", "pods", "-A", "-o", "wide"),
    ("get", "la,tjob,mdep,rp,memsvc", "-A", "-o", "yaml"),
    ("get", "pytorchjobs", "-A", "-o", "yaml"),
    ("logs", "-n", SYSTEM_NAMESPACE, "deploy/learnloop-operator", "--tail=80"),
    ("logs", "-n", SYSTEM_NAMESPACE, "deploy/learnloop-data", "--tail=40"),
    ("get", "events", "-A", "--sort-by=.lastTimestamp"),
)


def describe(api: Api) -> str:
    """Pods, our objects, the newest lines of the logs, events; each cut to its last 12,000 characters."""
    parts = []
    for command in WANTED:
        try:
            parts.append(f"$ kubectl {' '.join(command)}\n{api.run(*command)[-CHARACTERS:]}")
        except subprocess.CalledProcessError as error:
            parts.append(f"$ kubectl {' '.join(command)}\n{error.stderr}")
    return "\n".join(parts)
