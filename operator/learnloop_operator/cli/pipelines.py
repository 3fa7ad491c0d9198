"""`train`, and waiting for the run in a pipeline."""

import sys
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from learnloop_api.names import ANNOTATION_TRAIN
from learnloop_common.foreign_text import one_line
from learnloop_operator.cli.objects import Cluster, CommandError, NoAnswerError, Object, condition
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.cli.rollout_order import signed

T = TypeVar("T")
POLL_SECONDS = 5.0
AWAY_SECONDS = 300.0
"""The API server may be away for this long, so that its upgrade fails no pipeline."""
ENDED = ("Validated", "Failed")


def train(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    wait: Annotated[bool, typer.Option("--wait", help="until the run has ended")] = False,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="for --wait")] = 3600.0,
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
