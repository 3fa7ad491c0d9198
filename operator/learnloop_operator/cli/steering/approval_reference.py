"""What a message asked: a reference that the data plane has signed, held against what the rollout waits for now."""

import argparse
from datetime import datetime

from learnloop_operator.cli.access import data_plane
from learnloop_operator.cli.access.data_plane import DataPlaneAccess
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.steering.rollout_order import RolloutOrder
from learnloop_operator.cli.text.aligned_rows import condition
from learnloop_operator.core.times import parse, stamp


def arguments(parser: argparse.ArgumentParser) -> None:
    """The reference, and who reads it."""
    parser.add_argument(
        "--reference", help="from a message: refuses to decide about anything else than the message was about"
    )
    data_plane.arguments(parser)


def check(rollout: RolloutOrder, options: argparse.Namespace) -> None:
    """Does nothing without a reference. It grants no right: the decision is the caller's own.

    Raises:
        CommandError: it is not valid, or the rollout waits for another decision by now.
    """
    reference = getattr(options, "reference", None)  # who steers from elsewhere has no such option
    if not reference:
        return
    plane = DataPlaneAccess(rollout.cluster, options)
    path = f"/api/v1/models/{rollout.name}/approval-reference"
    asked = plane.ask("POST", path, body={"reference": reference})
    now = _waits_for(rollout)
    if (asked["revision"], asked["step"]) != now:
        told = f"{asked['revision']} at {_place(asked['step'])}"
        raise CommandError(
            f"--reference: it is about {told}, and {rollout.name} is at {now[0]} at {_place(now[1])} now: look at "
            f"`kubectl learnloop why {rollout.name}`, and decide without the reference"
        )
    was, began = parse(asked.get("since")), _asked_since(rollout)
    if was is not None and began is not None and was < began:
        raise CommandError(
            f"--reference: it is from {stamp(was)}, and {rollout.name} was asked about anew at {stamp(began)}: look at "
            f"`kubectl learnloop why {rollout.name}`, and decide without the reference"
        )


def _waits_for(rollout: RolloutOrder) -> tuple[str, int | None]:
    revision, step = str(rollout.trial()["revision"]), rollout.status.get("step")
    gates = rollout.status.get("gates") or {}
    if gates.get("phase") == "AwaitingApproval" and gates.get("revision") == revision:
        return revision, None
    return revision, None if step is None else step + 1


def _asked_since(rollout: RolloutOrder) -> datetime | None:
    """When the question of now was asked first; a reference from before was about the same step of an earlier try."""
    gates = rollout.status.get("gates") or {}
    if gates.get("phase") == "AwaitingApproval":
        return parse(gates.get("judgedAt"))
    paused = condition({"status": rollout.status}, "Paused")
    return parse(paused.get("lastTransitionTime"))


def _place(step: int | None) -> str:
    return "its gates" if step is None else f"step {step}"
