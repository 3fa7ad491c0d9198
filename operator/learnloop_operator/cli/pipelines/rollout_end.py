"""Waiting for what becomes of one revision: it serves everybody, was rolled back, or the order was refused."""

from collections.abc import Sequence
from typing import NamedTuple

from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.pipelines.junit import Case
from learnloop_operator.cli.pipelines.polling import poll
from learnloop_operator.cli.steering.rollout_order import playing_arms
from learnloop_operator.cli.text.aligned_rows import status as status_of


class RolloutEnd(NamedTuple):
    """What became of a revision."""

    promoted: bool
    sentence: str
    cases: Sequence[Case]


def wait_for_end(cluster: Cluster, name: str, revision: str, value: str, timeout: float) -> RolloutEnd:
    """Look every few seconds, and say each new verdict on stderr. `value`: of the order whose answer counts.

    Raises:
        CommandError: the rollout has not ended after `timeout` seconds, or the object was deleted.
    """
    tried = False

    def look() -> tuple[RolloutEnd | None, str]:
        nonlocal tried
        body = cluster.find("modeldeployments", name)
        if body is None:
            raise CommandError(f"ModelDeployment {name!r} was deleted before the rollout of {revision} had ended")
        status = status_of(body)
        tried = tried or revision in on_trial(status)
        sentence = f"{name} {status.get('phase', '')}: {status.get('verdict') or ''}"
        return end_of(status, revision, value, tried), sentence

    end = poll(look, timeout)
    if end is None:
        raise CommandError(
            f"the rollout of {revision} in {name!r} has not ended in {timeout:g} s; give --timeout more seconds. "
            f"`kubectl learnloop why {name}` says where it stands"
        )
    return end


def on_trial(status: Object) -> set[str]:
    """Revisions of the canary and of the arms that play in an experiment, or have won it and wait."""
    return {*playing_arms(status).values(), *(arm["revision"] for arm in (status.get("canary"),) if arm)}


def end_of(status: Object, revision: str, value: str, tried: bool) -> RolloutEnd | None:
    """What the status says of `revision`; None while the rollout goes on.

    `value`: of the order; before its answer nothing counts. `tried`: the revision has been on trial since, so that it
    has not merely to wait for its turn.
    """
    answer = next((item for item in status.get("decisions") or () if item["value"] == value), None)
    if answer is None:
        return None
    if answer["outcome"] != "obeyed":
        return _end(status, revision, False, f"{answer['outcome']}: {answer['message']}")
    blocked = next((pin for pin in status.get("blockedRevisions") or () if pin["revision"] == revision), None)
    if blocked:
        return _end(status, revision, False, f"{revision} was rolled back: {blocked['message']}")
    trial = revision in on_trial(status)
    if (status.get("stable") or {}).get("revision") == revision and not trial:
        return _end(status, revision, True, f"{revision} serves everybody: {status.get('verdict', '')}")
    if tried and not trial:
        return _end(status, revision, False, f"{revision} is no longer on trial: {status.get('verdict', '')}")
    return None


def _end(status: Object, revision: str, promoted: bool, sentence: str) -> RolloutEnd:
    """With a test case for the rollout, each gate's suite of this revision, and each metric's verdict."""
    cases = [Case("rollout", promoted, sentence)]
    gates = status.get("gates") or {}
    if gates.get("revision") == revision:
        cases += [
            Case(f"gate {suite['name']}", suite.get("verdict") == "passed", str(suite.get("message") or ""))
            for suite in gates.get("suites") or ()
        ]
    for found in status.get("evidence") or ():
        # What is not decided is no failure: the person has promoted without the rest of the evidence.
        passed = found["verdict"] != "worse" or bool(found.get("dryRun"))
        cases.append(Case(f"metric {found['name']}", passed, f"{found['verdict']}: {found['claim']}"))
    return RolloutEnd(promoted, sentence, cases)
