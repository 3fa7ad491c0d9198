"""`kubectl learnloop propose AGENT --file MANIFEST`: the newest proven model, in a file for a pull request."""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learnloop_api.names import LABEL_AGENT
from learnloop_common.foreign_text import code, plain
from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.pipelines.manifest_in_git import ModelInManifest, with_model
from learnloop_operator.cli.text.aligned_rows import condition, number
from learnloop_operator.cli.text.aligned_rows import status as status_of

NAME = "propose"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Whose model, which run of it, and into which file."""
    parser.add_argument("name", help="a LearningAgent")
    parser.add_argument("--file", required=True, help="manifest in a checkout; it is changed in place")
    parser.add_argument("--run", dest="job", help="a validated TrainingJob; left out, the agent's newest one")
    parser.add_argument("--object", help="LearningAgent or ModelDeployment of the file; left out, the agent's name")
    parser.add_argument("--body", metavar="FILE", help="write the evidence there, as text of the pull request")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Changes the file and nothing else: a pipeline commits it, and a person merges it.

    Raises:
        CommandError: no run is validated, or the file cannot be changed.
    """
    job = _proven(cluster, options.name, options.job)
    artifact = status_of(job)["artifact"]
    file = Path(options.file)
    try:
        before = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--file {options.file!r} cannot be read: {error}") from error
    after = with_model(before, options.object or options.name, ModelInManifest(artifact["uri"], artifact["sha256"]))
    name = job["metadata"]["name"]
    if after == before:
        return f"{options.file} has the model of {name} already"
    if options.body:
        _write(Path(options.body), proposal(options.name, job), "--body")
    _write(file, after, "--file")
    return f"{options.file} now has the model of {name}, {artifact['sha256'][:12]}; commit it and ask for a review"


def _proven(cluster: Cluster, agent: str, wanted: str | None) -> Object:
    if wanted is not None:
        job = cluster.get("trainingjobs", wanted)
        if (job["metadata"].get("labels") or {}).get(LABEL_AGENT) != agent:
            raise CommandError(f"--run {wanted!r} is no run of {agent!r}; `kubectl learnloop get` lists its runs")
        if not _validated(job):
            raise CommandError(f"--run {wanted!r} is not validated: {condition(job, 'Ready').get('message', '')}")
        return job
    jobs = [
        job
        for job in cluster.every("trainingjobs")
        if (job["metadata"].get("labels") or {}).get(LABEL_AGENT) == agent and _validated(job)
    ]
    if not jobs:
        raise CommandError(f"{agent!r} has no validated run; `kubectl learnloop retrain {agent} --wait` makes one")
    return max(jobs, key=lambda job: (status_of(job).get("finishedAt") or "", job["metadata"]["name"]))


def _validated(job: Object) -> bool:
    status = status_of(job)
    return status.get("phase") == "Validated" and bool((status.get("artifact") or {}).get("sha256"))


def proposal(agent: str, job: Object) -> str:
    """What a reviewer reads: the run, its evaluation beside the baseline, and each gate."""
    status = status_of(job)
    artifact = status["artifact"]
    lines = [
        f"# {agent}: serve the model of {job['metadata']['name']}",
        "",
        f"- model: {code(artifact['uri'])}",
        f"- sha256: {code(artifact['sha256'])}",
        f"- run ended: {plain(status.get('finishedAt') or 'unknown')}",
    ]
    if trigger := condition(job, "Ready").get("message"):
        lines.append(f"- {plain(trigger)}")
    rows = [_figures("this model", status.get("evaluation")), _figures("baseline", status.get("baseline"))]
    if shown := [row for row in rows if row]:
        lines += ["", *_table(("held-out episodes", "number", "mean return", "95 % interval"), shown)]
    found = status.get("gates") or ()
    gates = [(gate["name"], "passed" if gate["passed"] else "failed", gate["message"]) for gate in found]
    if gates:
        lines += ["", *_table(("gate", "verdict", "why"), gates)]
    return "\n".join([*lines, "", "Merging it begins a rollout, which the operator rolls back where it harms.", ""])


def _figures(whose: str, found: Any) -> tuple[str, ...]:
    if not found:
        return ()
    low, high = number(found.get("ciLow")), number(found.get("ciHigh"))
    return whose, str(found.get("episodes", "")), number(found.get("mean")) or "", f"{low} to {high}" if low else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *([plain(str(cell)) for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def _write(file: Path, text: str, option: str) -> None:
    """Whole, or not at all; the file keeps its mode."""
    try:
        mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as made:
            made.write(text)
        os.chmod(made.name, mode)
        os.replace(made.name, file)
    except OSError as error:
        raise CommandError(f"{option} {str(file)!r} cannot be written: {error.strerror or error}") from error
