"""`train`, and waiting in a pipeline: polling, the end of a rollout, and results as JUnit XML."""

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar
from xml.etree import ElementTree

import typer

from learnloop_api.names import ANNOTATION_TRAIN
from learnloop_common.foreign_text import one_line
from learnloop_operator.cli.objects import Cluster, CommandError, NoAnswerError, Object, condition
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.cli.rollout_order import playing_arms, signed

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0, production 2: parsers refuse a document with any other character."""
T = TypeVar("T")
POLL_SECONDS = 5.0
AWAY_SECONDS = 300.0
"""The API server may be away for this long, so that its upgrade fails no pipeline."""
ENDED = ("Validated", "Failed")
TimeoutOption = Annotated[float, typer.Option(metavar="SECONDS", help="for --wait")]
JunitOption = Annotated[str | None, typer.Option(metavar="FILE", help="with --wait: write the results as test cases")]


def check_waiting(wait: bool, timeout: float, junit: str | None) -> None:
    """Raises CommandError for `--junit` without `--wait`, or an invalid `--timeout`."""
    if junit and not wait:
        raise CommandError("--junit goes with --wait: it writes the final result")
    if not math.isfinite(timeout) or timeout < 0:
        raise CommandError(f"--timeout {timeout:g}: give seconds, 0 or more")


class Case(NamedTuple):
    """One test case."""

    name: str
    passed: bool
    message: str


def junit(suite_name: str, cases: Sequence[Case]) -> str:
    """One suite of `cases`, as text."""
    failures = sum(not case.passed for case in cases)
    suite = ElementTree.Element("testsuite", name=suite_name, tests=str(len(cases)), failures=str(failures))
    for name, passed, message in cases:
        case = Case(NOT_IN_XML.sub("\ufffd", name), passed, NOT_IN_XML.sub("\ufffd", message))
        element = ElementTree.SubElement(suite, "testcase", classname=suite_name, name=case.name)
        if case.passed:
            ElementTree.SubElement(element, "system-out").text = case.message
        else:
            ElementTree.SubElement(element, "failure", message=case.message)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def write_junit(file: str, suite_name: str, cases: Sequence[Case]) -> None:
    """Raises CommandError where `file` cannot be written."""
    try:
        Path(file).write_text(junit(suite_name, cases), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--junit {file!r} cannot be written: {error.strerror or error}") from error


@contextmanager
def failure_written(file: str | None, suite_name: str, case: str) -> Iterator[None]:
    """Writes a failed test case first, so that a killed process leaves no older result, and an unwritable file fails
    early. If the block raises CommandError, the case has its message."""
    if file and (Path(file).is_file() or not Path(file).exists()):
        write_junit(file, suite_name, [Case(case, False, "it was interrupted before there was a result")])
    try:
        yield
    except CommandError as error:
        if file:
            write_junit(file, suite_name, [Case(case, False, str(error))])
        raise


def train(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    wait: Annotated[bool, typer.Option("--wait", help="until the run has ended")] = False,
    timeout: TimeoutOption = 3600.0,
    junit: JunitOption = None,
) -> str:
    """Request a run; with --wait print each new phase, and the verdict.

    Raises:
        CommandError: the agent cannot train; with --wait: the run failed, was refused, or has not ended in time.
    """
    check_waiting(wait, timeout, junit)
    with failure_written(junit, name, "run"):
        agent = cluster.get("learningagents", name)
        before = int(status_of(agent).get("trainings") or 0)
        sentence = _request(cluster, agent, before)
        if not wait:
            return sentence
        job = _ended(cluster, name, before, timeout)
    if junit:
        write_junit(junit, job["metadata"]["name"], cases(job))
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


def cases(job: Object) -> list[Case]:
    """The run itself, and each gate."""
    status = status_of(job)
    through = status["phase"] == "Validated" or bool(status.get("artifact"))
    run_itself = Case("run", through, condition(job, "Ready").get("message", ""))
    gates = status.get("gates") or ()
    return [run_itself, *(Case(gate["name"], bool(gate["passed"]), gate["message"]) for gate in gates)]


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
    cases: Sequence[Case]


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
        return _end(status, revision, False, f"{answer['outcome']}: {answer['message']}")
    blocked = next((pin for pin in status.get("blockedRevisions") or () if pin["revision"] == revision), None)
    if blocked:
        return _end(status, revision, False, f"{revision} was rolled back: {blocked['message']}")
    trial = revision in on_trial(status)
    if (status.get("stable") or {}).get("revision") == revision and not trial:
        return _end(status, revision, True, f"{revision} serves everybody: {status.get('verdict', '')}")
    if tried and not trial:
        return _end(status, revision, False, f"{revision} is not on trial any more: {status.get('verdict', '')}")
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
    for item in status.get("evidence") or ():
        # An undecided metric does not fail: the person promoted without the rest of the evidence.
        passed = item["verdict"] != "worse"
        cases.append(Case(f"metric {item['name']}", passed, f"{item['verdict']}: {item['claim']}"))
    return RolloutEnd(promoted, sentence, cases)
