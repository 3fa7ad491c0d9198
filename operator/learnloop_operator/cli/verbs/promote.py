"""`kubectl learnloop promote NAME`: to 100 % by hand."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.pipelines.junit import Case, failure_written, write_junit
from learnloop_operator.cli.pipelines.options import check, waiting_options
from learnloop_operator.cli.pipelines.rollout_end import RolloutEnd, wait_for_end
from learnloop_operator.cli.steering.rollout_order import RolloutOrder, look

NAME = "promote"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout, and which of its arms."""
    parser.add_argument("name", help="a ModelDeployment")
    parser.add_argument("--revision", help="the arm to promote; left out, the canary or the winner")
    waiting_options(parser, "it serves everybody or was rolled back: exit status 0 or 1", "rollout, gates and metrics")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Name the revision; refused by the operator while a check is breached. Of a model that waits for the end of a
    guard it is the guard that ends, for it has no canary yet. With --wait it says each new verdict.

    Raises:
        CommandError: there is nothing to promote; with --wait: it was refused, rolled back, or has not ended in time.
    """
    check(options)
    with failure_written(options.junit, options.name, "rollout"):
        end = _end(cluster, options)
    if options.junit:
        write_junit(options.junit, options.name, end.cases)
    if not end.promoted:
        raise CommandError(end.sentence)
    return end.sentence


def _end(cluster: Cluster, options: argparse.Namespace) -> RolloutEnd:
    rollout = look(cluster, options.name)
    stable = (rollout.status.get("stable") or {}).get("revision")
    if options.revision and options.revision == stable and not rollout.canary:
        said = f"{stable} is stable already"
        return RolloutEnd(True, said, [Case("rollout", True, said)])
    waiting = rollout.waiting()
    if waiting and options.revision in (None, waiting):
        return _ordered(rollout, waiting, f"asked to begin {waiting} now, as a canary", options)
    candidate = (None if rollout.canary else rollout.winner()) or rollout.trial()["revision"]
    revision = options.revision or candidate
    if revision != candidate:
        raise CommandError(
            f"--revision {revision!r} is not the one to promote in {options.name!r}: that is {candidate}"
        )
    if rollout.held and rollout.held["verb"] == "pause":
        raise rollout.refusal("is on hold: `kubectl learnloop resume` first")
    return _ordered(rollout, revision, f"asked to promote {revision}", options)


def _ordered(rollout: RolloutOrder, revision: str, asked: str, options: argparse.Namespace) -> RolloutEnd:
    value = rollout.order(NAME, revision)
    if not options.wait:
        return RolloutEnd(True, f"{asked}; `kubectl learnloop why {options.name}` says what became of it", ())
    return wait_for_end(rollout.cluster, options.name, revision, value, options.timeout)
