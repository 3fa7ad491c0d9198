"""`propose`: an agent's newest proven model, written into its manifest. Comments, order and quotes of the file stay."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import yaml

from learnloop_api.names import LABEL_AGENT
from learnloop_common.foreign_text import code, plain
from learnloop_operator.cli.objects import Cluster, CommandError, Object, condition
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.cli.text import number

MOST_CHARACTERS = 1 << 20
WHERE = {"LearningAgent": ("spec", "deployment", "model"), "ModelDeployment": ("spec", "model")}
_PLAIN = re.compile(r"[a-z0-9]+://[A-Za-z0-9._/-]+|(?=[0-9a-f]*[a-df])[0-9a-f]{64}")
"""Plain scalars that every YAML reader takes for text."""


def propose(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    file: Annotated[str, typer.Option(help="manifest in a checkout; it is changed in place")],
    body: Annotated[
        str | None, typer.Option(metavar="FILE", help="write the evidence there, as text of the pull request")
    ] = None,
) -> str:
    """Changes the file and nothing else: a pipeline commits it, and a person merges it.

    Raises:
        CommandError: no run is validated, or the file cannot be changed.
    """
    job = _proven(cluster, name)
    artifact = status_of(job)["artifact"]
    try:
        before = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--file {file!r} cannot be read: {error}") from error
    after = with_model(before, name, ModelInManifest(artifact["uri"], artifact["sha256"]))
    if after == before:
        return f"{file} has the model of {job['metadata']['name']} already"
    if body:
        _write(Path(body), proposal(name, job), "--body")
    _write(Path(file), after, "--file")
    digest = artifact["sha256"][:12]
    return f"{file} now has the model of {job['metadata']['name']}, {digest}; commit it and ask for a review"


def _proven(cluster: Cluster, agent: str) -> Object:
    """The agent's newest validated run."""
    jobs = [
        job
        for job in cluster.every("trainingjobs")
        if (job["metadata"].get("labels") or {}).get(LABEL_AGENT) == agent and _validated(job)
    ]
    if not jobs:
        raise CommandError(f"{agent!r} has no validated run; `kubectl learnloop train {agent} --wait` makes one")
    return max(jobs, key=lambda job: (status_of(job).get("finishedAt") or "", job["metadata"]["name"]))


def _validated(job: Object) -> bool:
    status = status_of(job)
    return status.get("phase") == "Validated" and bool((status.get("artifact") or {}).get("sha256"))


def proposal(agent: str, job: Object) -> str:
    """Text for a reviewer: the run, its evaluation and the baseline, and each gate."""
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
    verdicts = {True: "passed", False: "failed"}
    gates = [(gate["name"], verdicts[bool(gate["passed"])], gate["message"]) for gate in status.get("gates") or ()]
    if gates:
        lines += ["", *_table(("gate", "verdict", "why"), gates)]
    return "\n".join([*lines, "", "Merging it begins a rollout, which the operator rolls back where it harms.", ""])


def _figures(label: str, proof: Any) -> tuple[str, ...]:
    if not proof:
        return ()
    low, high = number(proof.get("ciLow")), number(proof.get("ciHigh"))
    return label, str(proof.get("episodes", "")), number(proof.get("mean")) or "", f"{low} to {high}" if low else ""


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


class ModelInManifest(NamedTuple):
    """An artifact by address and digest."""

    uri: str
    sha256: str


def with_model(text: str, name: str, model: ModelInManifest) -> str:
    """The same text, in which the LearningAgent or ModelDeployment of this name has this model.

    A LearningAgent is pinned to it (`spec.deployment.model`); a ModelDeployment serves it (`spec.model`).

    Raises:
        CommandError: invalid YAML, not exactly one such object, or the object names no model yet.
    """
    if len(text) > MOST_CHARACTERS:
        raise CommandError(f"the file has {len(text)} characters, and {MOST_CHARACTERS} is the most; name the manifest")
    try:
        documents = [node for node in yaml.compose_all(text, yaml.SafeLoader) if isinstance(node, yaml.MappingNode)]
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())[:300]
        raise CommandError(f"invalid YAML: {reason}; name a manifest, not a template") from error
    matching = [node for node in documents if _text(node, "kind") in WHERE and _text(node, "metadata", "name") == name]
    if len(matching) != 1:
        raise CommandError(
            f"{len(matching)} LearningAgents and ModelDeployments of the file are called {name!r}; exactly one must be"
        )
    [node] = matching
    where = WHERE[_text(node, "kind")]
    mapping = _at(node, where)
    if not isinstance(mapping, yaml.MappingNode) or not isinstance(_at(mapping, ("uri",)), yaml.ScalarNode):
        raise CommandError(f"{'.'.join(where)}.uri of {name!r} is not in the file; write a first model there by hand")
    return _written(text, mapping, model)


def _written(text: str, mapping: yaml.MappingNode, model: ModelInManifest) -> str:
    places: list[tuple[int, int, str]] = []
    keys = {key.value: (key, value) for key, value in mapping.value}
    key, uri = keys["uri"]
    address = _scalar(model.uri)
    if "sha256" in keys:
        old = keys["sha256"][1]
        places.append((old.start_mark.index, old.end_mark.index, _scalar(model.sha256)))
    else:
        between = ", " if mapping.flow_style else "\n" + " " * key.start_mark.column
        address += f"{between}sha256: {_scalar(model.sha256)}"
    places.append((uri.start_mark.index, uri.end_mark.index, address))
    for begin, end, new in sorted(places, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _scalar(value: str) -> str:
    """As YAML writes it: plain where nothing in it could be read otherwise."""
    if _PLAIN.fullmatch(value):
        return value
    return str(yaml.safe_dump(value, default_style='"', width=len(value) * 10 + 100)).rstrip("\n")


def _at(node: yaml.Node | None, path: Sequence[str]) -> yaml.Node | None:
    for name in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for key, value in node.value if key.value == name), None)
    return node


def _text(node: yaml.Node, *path: str) -> str:
    value = _at(node, path)
    return str(value.value) if isinstance(value, yaml.ScalarNode) else ""
