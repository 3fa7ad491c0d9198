"""Orders from the pages: the verbs of the command line, with the caller's rights."""

import re
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
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def rights(cluster: Cluster) -> dict[str, bool]:
    """By verb, whether the caller may give the order in the cluster's namespace."""
    plurals = {plural for plural, _ in ORDERS.values()}
    allowed = {plural: cluster.allowed("patch", plural, cluster.namespace) for plural in plurals}
    return {name: allowed[plural] for name, (plural, _) in ORDERS.items()}


def helps() -> dict[str, str]:
    """The line of each verb in the command line's help."""
    return {name: VERBS[name].help for name in ORDERS}


def carry_out(cluster: Cluster, verb: str, name: str, seen: Mapping[str, object] | None = None) -> str:
    """Run the verb in the cluster's namespace, as `kubectl learnloop VERB NAME` does; returns its sentence.

    Args:
        seen: the arms that the page showed when it asked the person, by the names of SHOWN; None where it showed none.

    Raises:
        CommandError: unknown order, another model is on trial by now, or the verb's own refusal.
    """
    if verb not in ORDERS:
        raise CommandError(f"unknown verb {verb[:64]!r}; the orders are {', '.join(ORDERS)}")
    if not NAME.fullmatch(name):
        raise CommandError(f"invalid name {name[:64]!r}: name an object")
    plural, chosen = ORDERS[verb]
    if seen is not None:
        _still_so(cluster.get(plural, name), verb, name, seen)
    return chosen(cluster, name)


def _still_so(body: Object, verb: str, name: str, seen: Mapping[str, object]) -> None:
    """A question may stay open for an hour, so the answer counts only for the models that it showed."""
    now = shown(body)
    for field in SHOWN if verb in OF_A_STEP else ARMS:
        if field in seen and seen[field] != now[field]:
            was, is_now = ("none" if value is None else str(value)[:64] for value in (seen[field], now[field]))
            raise CommandError(f"{name}: {field} was {was} when you were asked, and is {is_now} now; look again")


def shown(body: Object) -> dict[str, object]:
    """The parts of a rollout that an order is about: revisions of its arms, and its step from 0."""
    status = status_of(body)
    arms = {"canary": status.get("canary"), "stable": status.get("stable"), "blocked": status.get("blockedRevision")}
    return {**{field: (arm or {}).get("revision") for field, arm in arms.items()}, "step": status.get("step")}
