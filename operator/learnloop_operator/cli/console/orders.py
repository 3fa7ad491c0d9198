"""Orders from the pages: the verbs of the command line, with the caller's rights, asked for first."""

import argparse
import re
import threading
import time
from collections.abc import Mapping
from typing import NoReturn

from learnloop_operator.cli.access.all_namespaces import AllNamespaces
from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.text.aligned_rows import status as status_of
from learnloop_operator.cli.verb_protocol import Verb
from learnloop_operator.cli.verb_table import VERBS
from learnloop_operator.cli.verbs import promote, train
from learnloop_operator.cli.verbs.steering import abort, approve, pause, reject, restart, resume, retry, skip, undo

STEERING: tuple[Verb, ...] = (approve, reject, pause, resume, skip, promote, abort, undo, retry, restart)
ORDERS: Mapping[str, tuple[str, Verb]] = {
    **{verb.NAME: ("modeldeployments", verb) for verb in STEERING},
    train.NAME: ("learningagents", train),
}
"""The plural that a verb writes to, and the verb."""
ARMS = ("canary", "stable", "blocked")
SHOWN = (*ARMS, "step")
OF_A_STEP = (approve.NAME, skip.NAME)
"""Orders about the step that a rollout is at; the others mean its model, at whatever weight."""
RIGHT = "patch"
RIGHTS_SECONDS = 30.0
MOST_RIGHTS = 1000
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class AskedRights:
    """What the API server said the caller may do, for half a minute."""

    def __init__(self, reads: AllNamespaces) -> None:
        self._reads, self._lock = reads, threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, bool]] = {}

    def of(self, namespace: str) -> dict[str, bool]:
        """By verb, whether its button is shown."""
        plurals = {plural: self._may(plural, namespace) for plural in {plural for plural, _ in ORDERS.values()}}
        return {name: plurals[plural] for name, (plural, _) in ORDERS.items()}

    def _may(self, plural: str, namespace: str) -> bool:
        key, now = (plural, namespace), time.monotonic()
        with self._lock:
            found = self._known.get(key)
        if found is not None and now - found[0] < RIGHTS_SECONDS:
            return found[1]
        allowed = self._reads.allowed(RIGHT, plural, namespace)
        with self._lock:
            if len(self._known) >= MOST_RIGHTS:
                self._known.clear()
            self._known[key] = (now, allowed)
        return allowed


def helps() -> dict[str, str]:
    """What each verb does, in the command line's words."""
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
        raise CommandError(f"verb {verb[:64]!r}: there is none; the orders are {', '.join(ORDERS)}")
    if not NAME.fullmatch(name):
        raise CommandError(f"name {name[:64]!r} is no name of an object")
    wanted = f"{verb} {cluster.namespace}/{name}"
    if confirmed != wanted:
        raise CommandError(f"confirm {confirmed[:300]!r}: send {wanted!r}, as the person agreed to it")
    plural, chosen = ORDERS[verb]
    if seen is not None:
        _still_so(cluster.get(plural, name), verb, name, seen)
    parser = _Parser(prog=verb)
    chosen.arguments(parser)
    return chosen.run(cluster, parser.parse_args([name]))


def _still_so(body: Object, verb: str, name: str, seen: Mapping[str, object]) -> None:
    """A question may stand open for an hour: what is agreed to is about the models that it was asked about."""
    now = shown(body)
    for field in SHOWN if verb in OF_A_STEP else ARMS:
        if field in seen and seen[field] != now[field]:
            was, is_now = _word(seen[field]), _word(now[field])
            raise CommandError(f"{name}: {field} was {was} when you were asked, and is {is_now} now; look again")


def shown(body: Object) -> dict[str, object]:
    """What a page shows of a rollout that an order is about: revisions of its arms, and its step from 0."""
    status = status_of(body)
    arms = {"canary": status.get("canary"), "stable": status.get("stable"), "blocked": status.get("blockedRevision")}
    return {**{field: (arm or {}).get("revision") for field, arm in arms.items()}, "step": status.get("step")}


def _word(value: object) -> str:
    return "none" if value is None else str(value)[:64]


class _Parser(argparse.ArgumentParser):
    """Answers where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{self.prog}: {message}; use `kubectl learnloop {self.prog}`")
