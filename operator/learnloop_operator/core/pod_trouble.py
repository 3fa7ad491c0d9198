"""Reasons why a pod does not work, in one sentence, from its status (core/v1 PodStatus)."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from learnloop_common import termination_message, untrusted_text
from learnloop_operator.core.plan import KubeObject

ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing")
"""Waiting reasons that pass by themselves."""
NO_IMAGE = ("ErrImagePull", "ImagePullBackOff")
_TURNED_AWAY = re.compile("unauthori[sz]ed|authori[sz]ation|authenticat|denied|forbidden|credentials", re.IGNORECASE)
LONGEST = 512
EVENT_MESSAGE = "eventMessage"
"""Key that kube.event_reader adds to a pod's status: what only its events say."""
TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r"^ +(?:\| ?|\+.*)")
"""The frame that Python draws round the exceptions of a group."""
Status = Mapping[str, Any]


def trouble(pod: KubeObject) -> str:
    """Message of a failed container, else why the pod cannot start; "" for one that runs or starts."""
    status = pod.get("status") or {}
    return last_words(status) or held_up(status)


def first_trouble(pods: Iterable[KubeObject]) -> str:
    """The trouble of the newest pod that has any, with the pod's name in front."""
    newest_first = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    for pod in newest_first:
        if text := trouble(pod):
            return f"pod {pod['metadata']['name']}: {text}"
    return ""


def complaint_of(pod: KubeObject) -> str | None:
    """Reason why a pod is not ready, in one sentence; None when it runs without having failed."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    if text := last_words(status):
        return f"pod {name} failed: {text}"
    if held := held_up(status):
        return f"pod {name} waits: {held}"
    running = any("running" in (item.get("state") or {}) for item in status.get("containerStatuses") or ())
    return f"pod {name} waits: {step_of(status)}" if status.get("phase") == "Pending" and not running else None


def creation_trouble(deployment: KubeObject) -> str:
    """Reason why a Deployment's pods cannot be made (quota, pod security, priority class…); "" when they can."""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason") or "")[:LONGEST]
    return ""


def last_words(status: Status) -> str:
    """The termination message of a container that failed and is not ready again; its exit code where it said
    nothing."""
    for container in containers(status):
        if container.get("ready"):
            continue
        for when in ("state", "lastState"):
            ended = (container.get(when) or {}).get("terminated") or {}
            if not ended.get("exitCode"):
                continue
            message = cause_in(str(ended.get("message") or ""))
            return message[-LONGEST:] or f"container {container.get('name')} {exit_of(ended)}, and left no message"
    return ""


def cause_in(message: str) -> str:
    """The line of a termination message that names the cause. A container that wrote none leaves the end of its log:
    there it is the exception of the last traceback, else the last line that is not progress in JSON."""
    lines = [_FRAME.sub("", termination_message.plain(line)).rstrip() for line in message.splitlines()]
    starts = [number for number, line in enumerate(lines) if line.endswith(TRACEBACK)]
    after = lines[starts[-1] + 1 :] if starts else []
    raised = [line for line in after if line and not line.startswith(" ")]
    spoken = [text for line in lines if (text := _spoken(line))]
    return untrusted_text.one_line(next(iter(raised), "") or next(reversed(spoken), ""))


def _spoken(line: str) -> str:
    """Message of a log line; "" for an object of JSON without one."""
    try:
        item = json.loads(line)
    except ValueError:
        return line.strip()
    return str(item.get("message") or "") if isinstance(item, dict) else line.strip()


def held_up(status: Status) -> str:
    """Reason why the pod cannot start: not schedulable, no image, a bad configuration; "" when waiting is enough."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason') or 'Unschedulable'}: {condition.get('message') or 'no message'}"[:LONGEST]
    for container in containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason not in ON_ITS_WAY:
            initial = "init container " + str(container.get("name")) + ": " if container.get("_init") else ""
            text, advice = f"{initial}{reason}: {waiting.get('message') or 'no message'}", ""
            if reason in NO_IMAGE and _TURNED_AWAY.search(text):
                advice = "; list a Secret of this namespace for its registry in `pod.imagePullSecrets`"
            return text[: LONGEST - len(advice)] + advice
    return str(status.get(EVENT_MESSAGE) or "")


def step_of(status: Status) -> str:
    for container in status.get("initContainerStatuses") or ():
        state = container.get("state") or {}
        if "running" in state:
            return f"init container {container.get('name')} runs"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return str(waiting["reason"])
    return "not scheduled yet"


def lost_node(status: Status) -> str:
    """Reason why the pod's node is taken away (core/v1, DisruptionTarget); "" where it is not.

    The kubelet that evicts a pod for what the node lacks says so too, but the pod itself used it up: no excuse.
    """
    if status.get("reason") == "Evicted":
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return f"{condition.get('reason')}: {condition.get('message') or 'no message'}"[:LONGEST]
    return ""


def exit_of(ended: Status) -> str:
    """Describe how a container ended, e.g. `exited with 137 (OOMKilled)`."""
    reason = ended.get("reason")
    return f"exited with {ended.get('exitCode')}" + (f" ({reason})" if reason and reason != "Error" else "")


def containers(status: Status) -> list[Status]:
    """Statuses of the init containers, marked as such, then of the others."""
    first = [{**item, "_init": True} for item in status.get("initContainerStatuses") or ()]
    return [*first, *(status.get("containerStatuses") or ())]
