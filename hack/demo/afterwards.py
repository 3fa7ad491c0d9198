"""After the story: nothing burns processor time, and the user knows where to look and how to remove everything."""

import json
import os
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path

from demo.api import Api
from demo.container_cluster import removal
from demo.narrator import Narrator
from demo.settings import RELEASE, SOURCE, SYSTEM_NAMESPACE, Settings
from demo.waiting import until

FINISHED = ("Validated", "Failed")
ACTOR, TRAINING = "app.kubernetes.io/component=actor", "training.kubeflow.org/job-name"
SUSPENDED = json.dumps({"spec": {"suspend": True}})
RESUMED = json.dumps({"spec": {"suspend": False}})
REST_SECONDS = 120.0


def bring_to_rest(api: Api, settings: Settings, narrator: Narrator) -> None:
    """Let no episode be played and nothing be trained, as the agent's owner would: suspended, it keeps what it serves.

    Raises:
        StoryFailedError: pods of actors or of training are still there after two minutes.
    """
    narrator.chapter("At rest")
    api.run("patch", "-n", settings.namespace, "learningagent", settings.agent, "--type=merge", "-p", SUSPENDED)
    for job in (api.custom(settings.namespace, "trainingjobs") or {}).get("items", []):
        if (job.get("status") or {}).get("phase") not in FINISHED:
            name = job["metadata"]["name"]
            api.run("patch", "-n", settings.namespace, "trainingjob", name, "--type=merge", "-p", SUSPENDED)
    until("the end of all actors and training", lambda: None if _working(api, settings) else True, REST_SECONDS)
    narrator.say("the agent is suspended (spec.suspend): no one plays or trains; the cluster stays, and is idle")


def suspend(api: Api, settings: Settings) -> None:
    """After a failure, on whosever cluster: the agent plays and trains no more, if there is one."""
    with suppress(subprocess.CalledProcessError):
        api.run("patch", "-n", settings.namespace, "learningagent", settings.agent, "--type=merge", "-p", SUSPENDED)


def _working(api: Api, settings: Settings) -> list[str]:
    pods = [*api.pods(settings.namespace, ACTOR), *api.pods(settings.namespace, TRAINING)]
    return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") in {"Pending", "Running"}]


def say_what_next(kubectl: list[str], settings: Settings, kind: str | None) -> None:
    """The last lines before the figures: how to look around, and how to remove everything."""
    command = shlex.join([*kubectl, "-n", settings.namespace])
    console = shlex.join([*kubectl[1:], "-n", settings.namespace, "console"])
    lines = ["Look around", "───────────"]
    if kubeconfig := os.environ.get("KUBECONFIG"):
        lines.append(f"  export KUBECONFIG={shlex.quote(kubeconfig)}")
    if Path(kubectl[0]).is_absolute():
        lines.append(f"  export PATH=$PATH:{shlex.quote(str(Path(kubectl[0]).parent))}")
    lines += [
        f"  {command} get la,tjob,mdep,pods",
        f"  {command} patch la {settings.agent} --type=merge -p '{RESUMED}'   # let it play on",
        "  python3 -m venv ~/.learnloop && ~/.learnloop/bin/pip install ./crds './operator[console]'",
        f"  ~/.learnloop/bin/kubectl-learnloop {console}   # the loop in a browser, with your own rights",
        "  docs/how-to/watch-it.md   # dashboards for a Grafana of yours, alerts, traces",
        "",
        "Remove it",
        "─────────",
    ]
    if kind == SOURCE:
        lines.append("  make cluster-down   # the cluster; programs and images are kept for the next time")
        lines.append("  make remove         # all of it, with programs, images, and the Debian packages it brought")
    elif kind:
        lines.append(f"  {shlex.join(removal(kind))}")
    else:
        lines.append(f"  {shlex.join([*kubectl, 'delete', 'namespace', settings.namespace])}")
        lines.append(f"  helm uninstall {RELEASE} --namespace {SYSTEM_NAMESPACE}")
    print("\n" + "\n".join(lines) + "\n", flush=True)
