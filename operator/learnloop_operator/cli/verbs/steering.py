"""The verbs that write one order about a rollout: what each refuses, writes and answers."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering import approval_reference
from learnloop_operator.cli.steering.rollout_order import RolloutOrder, look

Decide = Callable[[RolloutOrder, argparse.Namespace], str]


def _no_options(parser: argparse.ArgumentParser) -> None:
    """The name is enough."""


@dataclass(frozen=True, slots=True)
class SteeringVerb:
    """One verb.

    Attributes:
        decide: writes the order and returns a sentence; raises CommandError where there is nothing to do.
        options: adds what the verb takes besides the name.
        while_suspended: obeyed by a suspended rollout, too.
    """

    NAME: str
    decide: Decide
    options: Callable[[argparse.ArgumentParser], None] = _no_options
    while_suspended: bool = False

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which rollout, and the verb's own options."""
        parser.add_argument("name", help="a ModelDeployment")
        self.options(parser)

    def run(self, cluster: Cluster, options: argparse.Namespace) -> str:
        """Look at the rollout, then decide."""
        return self.decide(look(cluster, options.name, to_roll_back=self.while_suspended), options)


def _abort(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    status = rollout.status
    if options.arm:
        revision = rollout.challenger(options.arm)
        rollout.order("abort", revision)
        if rollout.canary and rollout.canary["revision"] == revision:
            return f"rolling back {options.arm}, the canary: its experiment ends with it"
        return f"taking {options.arm} out of the experiment; the others go on"
    arm = rollout.canary or (status.get("stable") if status.get("previous") else None)
    if not arm:
        undo = f"`kubectl learnloop undo {rollout.name}`"
        raise rollout.refusal(f"has neither a canary nor a warm old arm: {undo} rolls back a promoted model")
    rollout.order("abort", arm["revision"])
    return f"rolling back {arm['revision']}; `kubectl learnloop why {rollout.name}` says when it is done"


def _abort_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arm", help="name of an arm of the experiment; the others go on, unless it is the canary of a step"
    )


def _approve(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    """Approve exactly the revision, and the gates or the step, that are shown now."""
    if rollout.held:
        raise rollout.refusal(f"is on hold: `kubectl learnloop resume {rollout.name}` ends that")
    if rollout.status.get("phase") != "Paused" or not rollout.canary:
        raise rollout.refusal("waits for no approval")
    approval_reference.check(rollout, options)
    if options.arm:
        chosen = rollout.challenger(options.arm)
        rollout.order("approve", rollout.at_step(chosen))
        return f"approved {options.arm} ({chosen}) at {rollout.where}"
    gates, canary = rollout.status.get("gates") or {}, str(rollout.canary["revision"])
    if gates.get("phase") == "AwaitingApproval" and gates.get("revision") == canary:
        rollout.order("approve", canary)
        return f"approved {canary} at its gates"
    winner = rollout.winner()
    if winner not in (None, canary):
        arm = (rollout.status.get("experiment") or {}).get("winner")
        raise rollout.refusal(f"waits for the approval of another arm than the canary: add --arm {arm} ({winner})")
    rollout.order("approve", rollout.at_step())
    return f"approved {canary} at {rollout.where}"


def _approve_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arm", help="the arm that goes on where an experiment waits for a person's choice")
    approval_reference.arguments(parser)


def _reject(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    if rollout.status.get("phase") != "Paused" or not rollout.canary:
        abort = f"`kubectl learnloop abort {rollout.name}`"
        raise rollout.refusal(f"waits for no approval; {abort} rolls back a canary at any time")
    approval_reference.check(rollout, options)
    rollout.order("reject", rollout.at_step())
    return f"rejected {rollout.canary['revision']} at {rollout.where}: it is rolled back and blocked"


def _pause(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    revision, held = rollout.trial()["revision"], rollout.held
    if held and held["verb"] == "pause":
        return f"{revision} is on hold since {held['at']} already, by {held.get('by')}"
    rollout.order("pause", revision)
    resume = f"`kubectl learnloop resume {rollout.name}`"
    return f"{revision} holds at {rollout.where}; a breach still rolls it back; {resume} ends it"


def _resume(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    revision = rollout.trial()["revision"]
    if not rollout.held or rollout.held["verb"] != "pause":
        approve = f"`kubectl learnloop approve {rollout.name}`"
        raise rollout.refusal(f"is not on hold; {approve} passes a step that waits for approval")
    rollout.order("resume", revision)
    return f"{revision} goes on at {rollout.where}"


def _restart(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    revision = rollout.trial()["revision"]
    rollout.order("restart", revision)
    return f"{revision} starts over at the first step"


def _skip(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    """Exactly the step that is shown now; refused by the operator while a check is breached."""
    why = f"`kubectl learnloop why {rollout.name}` says what became of it"
    if waiting := rollout.waiting():
        rollout.order("skip", waiting)
        return f"asked to begin {waiting} now; {why}"
    if rollout.status.get("step") is None:
        rollout.trial()
        raise rollout.refusal("is at no step yet")
    rollout.order("skip", rollout.at_step())
    return f"asked to skip {rollout.where}; {why}"


def _retry(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    first = rollout.status.get("blockedRevision")
    if not first:
        raise rollout.refusal("has no blocked revision: there is nothing to retry")
    blocked = rollout.status.get("blockedRevisions") or [first]
    revisions = ", ".join(pin["revision"] for pin in blocked)
    if options.all:
        rollout.order("retry", "all")
        return f"{revisions} may try again"
    pinned = next((pin for pin in blocked if pin["revision"] == options.revision), None) if options.revision else first
    if pinned is None:
        raise rollout.refusal(f"has not blocked --revision {options.revision!r}: it has {revisions}")
    rollout.order("retry", pinned["revision"])
    return f"{pinned['revision']} may try again; it was rolled back because: {pinned['message']}"


def _retry_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--revision", help="this one; left out, the one that is in the way of the wished model")
    which.add_argument("--all", action="store_true", help="all that are blocked")


def _undo(rollout: RolloutOrder, options: argparse.Namespace) -> str:
    status = rollout.status
    if rollout.canary:
        raise rollout.refusal(f"has a canary: `kubectl learnloop abort {rollout.name}` rolls that back")
    stable, previous, last = status.get("stable"), status.get("previous"), status.get("lastStable")
    to = previous or last
    if not stable or not to:
        raise rollout.refusal("has no earlier model on record: set spec.model to the one that shall serve")
    rollout.order("undo", stable["revision"])
    if previous:
        return f"{stable['revision']} goes; {previous['revision']} is warm and serves again immediately"
    return f"{stable['revision']} goes as soon as the pods of {to['uri']} can serve"


abort = SteeringVerb("abort", _abort, _abort_options, while_suspended=True)
approve = SteeringVerb("approve", _approve, _approve_options)
pause = SteeringVerb("pause", _pause)
reject = SteeringVerb("reject", _reject, approval_reference.arguments, while_suspended=True)
restart = SteeringVerb("restart", _restart)
resume = SteeringVerb("resume", _resume)
retry = SteeringVerb("retry", _retry, _retry_options)
skip = SteeringVerb("skip", _skip)
undo = SteeringVerb("undo", _undo)
