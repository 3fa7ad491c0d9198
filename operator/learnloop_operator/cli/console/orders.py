"""Orders from the pages: the verbs of the command line, with the caller's rights, asked for first."""

import re
import threading
import time
from collections.abc import Callable, Mapping

from learnloop_operator.cli.main import VERBS
from learnloop_operator.cli.objects import Cluster, CommandError, Object
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.cli.pipelines import train
from learnloop_operator.cli.steering import abort, approve, pause, promote, reject, restart, resume, retry, skip, undo

STEERING = (approve, reject, pause, resume, skip, promote, abort, undo, retry, restart)
ORDERS: Mapping[str, tuple[str, Callable[..., str]]] = {
    **{verb.__name__: ("modeldeployments", verb) for verb in STEERING},
    "train": ("learningagents", train),
}
"""The plural that a verb writes to, and the verb."""
ARMS = ("canary", "stable", "blocked")
SHOWN = (*ARMS, "step")
OF_A_STEP = ("approve", "skip")
"""Orders about the step that a rollout is at; the others mean its model, at whatever weight."""
RIGHT = "patch"
RIGHTS_SECONDS = 30.0
MOST_RIGHTS = 1000
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class CachedRights:
    """The caller's rights, cached for half a minute."""

    def __init__(self, reads: Cluster) -> None:
        self._reads, self._lock = reads, threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, bool]] = {}

    def of(self, namespace: str) -> dict[str, bool]:
        """By verb, whether its button is shown."""
        plurals = {plural: self._may(plural, namespace) for plural in {plural for plural, _ in ORDERS.values()}}
        return {name: plurals[plural] for name, (plural, _) in ORDERS.items()}

    def _may(self, plural: str, namespace: str) -> bool:
        key, now = (plural, namespace), time.monotonic()
        with self._lock:
            cached = self._known.get(key)
        if cached is not None and now - cached[0] < RIGHTS_SECONDS:
            return cached[1]
        allowed = self._reads.allowed(RIGHT, plural, namespace)
        with self._lock:
            if len(self._known) >= MOST_RIGHTS:
                self._known.clear()
            self._known[key] = (now, allowed)
        return allowed


def helps() -> dict[str, str]:
    """The line of each verb in the command line's help."""
    return {name: VERBS[name].help for name in ORDERS}


def carry_out(cluster: Cluster, verb: str, name: str, confirmed: str, seen: Mapping[str, object] | None = None) -> str:
    """Run the verb in the cluster's namespace, as `kubectl learnloop VERB NAME` does; returns its sentence.

    Args:
        cluster: the caller's, in the object's namespace.
        verb: one of ORDERS.
        name: the object's.
        confirmed: `VERB NAMESPACE/NAME`, which the person was shown and agreed to.
        seen: the arms that the page showed then, by the names of SHOWN; None where it showed none.

    Raises:
        CommandError: no such order, not confirmed, another model is on trial by now, or what the verb itself refuses.
    """
    if verb not in ORDERS:
        raise CommandError(f"unknown verb {verb[:64]!r}; the orders are {', '.join(ORDERS)}")
    if not NAME.fullmatch(name):
        raise CommandError(f"invalid name {name[:64]!r}: name an object")
    wanted = f"{verb} {cluster.namespace}/{name}"
    if confirmed != wanted:
        raise CommandError(f"confirm {confirmed[:300]!r}: send {wanted!r}, as the person agreed to it")
    plural, chosen = ORDERS[verb]
    if seen is not None:
        _still_so(cluster.get(plural, name), verb, name, seen)
    return chosen(cluster, name)


def _still_so(body: Object, verb: str, name: str, seen: Mapping[str, object]) -> None:
    """A question may stay open for an hour, so the answer counts only for the models that it showed."""
    now = shown(body)
    for field in SHOWN if verb in OF_A_STEP else ARMS:
        if field in seen and seen[field] != now[field]:
            was, is_now = _word(seen[field]), _word(now[field])
            raise CommandError(f"{name}: {field} was {was} when you were asked, and is {is_now} now; look again")


def shown(body: Object) -> dict[str, object]:
    """The parts of a rollout that an order is about: revisions of its arms, and its step from 0."""
    status = status_of(body)
    arms = {"canary": status.get("canary"), "stable": status.get("stable"), "blocked": status.get("blockedRevision")}
    return {**{field: (arm or {}).get("revision") for field, arm in arms.items()}, "step": status.get("step")}


def _word(value: object) -> str:
    return "none" if value is None else str(value)[:64]
