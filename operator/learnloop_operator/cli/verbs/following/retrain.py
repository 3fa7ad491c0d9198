"""`kubectl learnloop retrain AGENT --wait`: train in a pipeline, and fail it where the gates do."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.pipelines import options as waiting
from learnloop_operator.cli.pipelines.junit import Case, failure_written, write_junit
from learnloop_operator.cli.pipelines.polling import poll
from learnloop_operator.cli.text.aligned_rows import condition
from learnloop_operator.cli.text.aligned_rows import status as status_of
from learnloop_operator.cli.verbs import train

NAME = "retrain"
ENDED = ("Validated", "Failed")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which agent, how long, and where the results go."""
    parser.add_argument("name", help="a LearningAgent")
    waiting.waiting_options(parser, "the run has ended", "the run and its gates")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Asks; with --wait it says each new phase, and what came of it.

    Raises:
        CommandError: the run failed, a gate refused it, or it has not ended in time.
    """
    waiting.check(options)
    with failure_written(options.junit, options.name, "run"):
        before = int(status_of(cluster.get("learningagents", options.name)).get("trainings") or 0)
        asked = train.run(cluster, options)
        if not options.wait:
            return asked
        job = _ended(cluster, options.name, before, options.timeout)
    if options.junit:
        write_junit(options.junit, job["metadata"]["name"], cases(job))
    sentence = f"{job['metadata']['name']} {status_of(job)['phase']}: {condition(job, 'Ready').get('message', '')}"
    if status_of(job)["phase"] != "Validated":
        raise CommandError(sentence)
    return sentence


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
