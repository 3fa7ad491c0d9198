"""`kubectl learnloop why NAME`: the last verdict and how it came to it."""

import argparse

from learnloop_operator.cli.cluster import Cluster, Object
from learnloop_operator.cli.output import rows
from learnloop_operator.cli.output import status as status_of

NAME = "why"
HELP = "explain a rollout's state in sentences"
EVENTS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Verdict, what is blocked, what is not as it should be, and the log of decisions."""
    body = cluster.get("modeldeployments", options.name)
    status = status_of(body)
    if not status:
        return f"ModelDeployment {options.name}: the operator has not looked at it yet; is it running?"
    blocked = status.get("blockedRevision") or {}
    parts = [
        rows(
            [
                ("phase", status.get("phase")),
                ("verdict", status.get("verdict")),
                ("blocked", f"{blocked['revision']} since {blocked['at']}: {blocked['message']}" if blocked else None),
                *_arms(status),
            ]
        )
    ]
    log = cluster.events(body)[-EVENTS:]
    if log:
        parts.append("\n".join(f"{item['at']:%H:%M:%S}  {item['reason']}: {item['note']}" for item in log))
    return "\n\n".join(parts)


def _arms(status: Object) -> list[tuple[str, str]]:
    found = []
    for role in ("stable", "canary", "previous"):
        arm = status.get(role)
        if arm:
            said = f": {arm['message']}" if arm.get("message") else ""
            ready = f"{arm.get('readyReplicas') or 0}/{arm.get('replicas') or 0} ready"
            found.append((role, f"{arm['revision']} {arm['uri']}, {ready}{said}"))
    return found
