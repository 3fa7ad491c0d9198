"""`kubectl learnloop retrain AGENT --wait`: train in a pipeline, and fail it where the gates do."""

import argparse
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.text.aligned_rows import condition
from learnloop_operator.cli.text.aligned_rows import status as status_of
from learnloop_operator.cli.verbs import train

NAME = "retrain"
HELP = "train an agent and wait for the verdict: exit status 0 validated, 1 refused or failed; JUnit for pipelines"
POLL_SECONDS = 5.0
ENDED = ("Validated", "Failed")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which agent, how long, and where the results go."""
    parser.add_argument("name", help="a LearningAgent")
    parser.add_argument("--wait", action="store_true", help="until the run has ended")
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS", help="for --wait (%(default)s)")
    parser.add_argument("--junit", metavar="FILE", help="with --wait: each gate as a test case")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Asks; with --wait it says each new phase, and what came of it.

    Raises:
        CommandError: the run failed, a gate refused it, or it has not ended in time.
    """
    if options.junit and not options.wait:
        raise CommandError("--junit goes with --wait: there is no result before the end")
    before = int(status_of(cluster.get("learningagents", options.name)).get("trainings") or 0)
    asked = train.run(cluster, options)
    if not options.wait:
        return asked
    job = _ended(cluster, options.name, before, time.monotonic() + options.timeout)
    if options.junit:
        Path(options.junit).write_text(junit(job), encoding="utf-8")
    sentence = f"{job['metadata']['name']} {status_of(job)['phase']}: {condition(job, 'Ready').get('message', '')}"
    if status_of(job)["phase"] != "Validated":
        raise CommandError(sentence)
    return sentence


def _ended(cluster: Cluster, agent: str, before: int, until: float) -> Object:
    """The first run after number `before` that begins, when it has ended."""
    said = ""
    while time.monotonic() < until:
        number = int(status_of(cluster.get("learningagents", agent)).get("trainings") or 0)
        job = cluster.find("trainingjobs", f"{agent}-{before + 1}") if number > before else None
        if job is not None:
            phase = str(status_of(job).get("phase") or "Pending")
            if phase in ENDED and status_of(job).get("finishedAt"):
                return job
            if phase != said:
                said = phase
                print(f"{job['metadata']['name']} {phase}", file=sys.stderr, flush=True)
        time.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))
    raise CommandError(f"{agent}-{before + 1} has not ended in time; give --timeout more seconds, or look at it")


def junit(job: Object) -> str:
    """Each gate as a test case, and the run itself as one."""
    name, status = job["metadata"]["name"], status_of(job)
    cases = [("run", status["phase"] == "Validated" or bool(status.get("artifact")), "")]
    cases[0] = (*cases[0][:2], condition(job, "Ready").get("message", ""))
    cases += [(gate["name"], bool(gate["passed"]), gate["message"]) for gate in status.get("gates") or ()]
    failures = sum(not passed for _, passed, _ in cases)
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(cases)), failures=str(failures))
    for case, passed, message in cases:
        found = ElementTree.SubElement(suite, "testcase", classname=name, name=case)
        if passed:
            ElementTree.SubElement(found, "system-out").text = message
        else:
            ElementTree.SubElement(found, "failure", message=message)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
