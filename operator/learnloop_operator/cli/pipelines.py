"""`train`, and waiting in a pipeline: polling, and the end of a rollout."""

import sys
import time
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar

import typer

from learnloop_api.names import ANNOTATION_TRAIN
from learnloop_common.foreign_text import one_line
from learnloop_operator.cli.objects import Cluster, CommandError, NoAnswerError, Object, condition
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.cli.rollout_order import playing_arms, signed

T = TypeVar("T")
POLL_SECONDS = 5.0
AWAY_SECONDS = 300.0
"""The API server may be away for this long, so that its upgrade fails no pipeline."""
ENDED = ("Validated", "Failed")
TimeoutOption = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="for --wait")]


def train(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    wait: Annotated[bool, typer.Option("--wait", help="until the run has ended")] = False,
    timeout: TimeoutOption = 3600.0,
) -> str:
    """Request a run; with --wait print each new phase, and the verdict.

    Raises:
        CommandError: the agent cannot train; with --wait: the run failed, was refused, or has not ended in time.
    """
    agent = cluster.get("learningagents", name)
    before = int(status_of(agent).get("trainings") or 0)
    requested = _request(cluster, agent, before)
    if not wait:
        return requested
    job = _ended(cluster, name, before, timeout)
    sentence = f"{job['metadata']['name']} {status_of(job)['phase']}: {condition(job, 'Ready').get('message', '')}"
    if status_of(job)["phase"] != "Validated":
        raise CommandError(sentence)
    return sentence


def _request(cluster: Cluster, agent: Object, before: int) -> str:
    """Sign the request; the operator answers with a TrainingJob."""
    name, spec, last = agent["metadata"]["name"], agent["spec"], status_of(agent).get("lastTraining") or {}
    if not spec.get("training"):
        raise CommandError(f"spec.training of LearningAgent {name!r} is missing: it says how to train; set it")
    if spec.get("suspend"):
        raise CommandError(f"spec.suspend of LearningAgent {name!r} is true: set it to false first")
    cluster.annotate("learningagents", name, {ANNOTATION_TRAIN: signed(cluster, "now")})
    if last and last.get("phase") not in ENDED:
        return f"{last['name']} is running; the next run follows when it has ended"
    return f"requested {name}-{before + 1}"


def _ended(cluster: Cluster, agent: str, before: int, timeout: float) -> Object:
    """The first run after number `before` that begins, when it has ended."""
    begun = False

    def look() -> tuple[Object | None, str]:
        nonlocal begun
        body = cluster.get("learningagents", agent)
        if int(status_of(body).get("trainings") or 0) <= before:
            return None, f"{agent} has not begun a run: {condition(body, 'Ready').get('message', '')}"
        job = cluster.find("trainingjobs", f"{agent}-{before + 1}")
        if job is None and begun:
            raise CommandError(f"TrainingJob {agent}-{before + 1} was deleted before it had ended")
        if job is None:
            return None, ""
        begun = True
        phase = str(status_of(job).get("phase") or "Pending")
        ended = phase in ENDED and status_of(job).get("finishedAt")
        return job if ended else None, f"{job['metadata']['name']} {phase}"

    job = poll(look, timeout)
    if job is None:
        raise CommandError(
            f"{agent}-{before + 1} has not ended in {timeout:g} s; give --timeout more seconds, or look at it"
        )
    return job


def poll(look: Callable[[], tuple[T | None, str]], timeout: float) -> T | None:
    """Calls `look` every few seconds until its first value is not None; None after `timeout` seconds.

    The second value of `look` is a sentence for stderr, printed when it changes; empty: none.

    Raises:
        NoAnswerError: the API server has been away for AWAY_SECONDS, or is when the time is over.
    """
    until, printed = time.monotonic() + timeout, ""
    away: float | None = None
    while True:
        try:
            value, sentence = look()
            away = None
        except NoAnswerError as error:
            now = time.monotonic()
            away = now if away is None else away
            if now >= until or now - away >= AWAY_SECONDS:
                raise
            value, sentence = None, str(error)
        if value is not None:
            return value
        if sentence and sentence != printed:
            printed = sentence
            print(one_line(sentence), file=sys.stderr, flush=True)
        left = until - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(POLL_SECONDS, left))


class RolloutEnd(NamedTuple):
    """The outcome of a revision's rollout."""

    promoted: bool
    sentence: str


def wait_for_end(cluster: Cluster, name: str, revision: str, value: str, timeout: float) -> RolloutEnd:
    """Print each new verdict on stderr. `value`: of the order whose answer counts.

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
    """The outcome in the status; None while the rollout goes on.

    `value`: of the order; nothing counts before its answer. `tried`: the revision has been on trial since, and is not
    just waiting for its turn.
    """
    answer = next((item for item in status.get("decisions") or () if item["value"] == value), None)
    if answer is None:
        return None
    if answer["outcome"] != "obeyed":
        return RolloutEnd(False, f"{answer['outcome']}: {answer['message']}")
    blocked = next((pin for pin in status.get("blockedRevisions") or () if pin["revision"] == revision), None)
    if blocked:
        return RolloutEnd(False, f"{revision} was rolled back: {blocked['message']}")
    trial = revision in on_trial(status)
    if (status.get("stable") or {}).get("revision") == revision and not trial:
        return RolloutEnd(True, f"{revision} serves everybody: {status.get('verdict', '')}")
    if tried and not trial:
        return RolloutEnd(False, f"{revision} is not on trial any more: {status.get('verdict', '')}")
    return None
