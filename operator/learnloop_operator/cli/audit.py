"""`audit verify|export|erase`: the audit chain of the namespace, and the right to erasure."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Annotated, Any, Literal

import typer

from learnloop_operator.cli import data_plane_access, objects
from learnloop_operator.cli.cluster import Cluster

PAGE = 1000
VERIFY_SECONDS, ERASE_SECONDS = 120.0, 310.0
ERASED = "all episodes, steps, rewards, feedback, memories, recalls and events"


def audit(
    cluster: Cluster,
    plane: data_plane_access.DataPlaneAccess,
    what: Annotated[
        Literal["verify", "export", "erase"],
        typer.Argument(help="export writes NDJSON, erase a receipt"),
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="a new file; default: stdout", show_default=False),
    ] = None,
    action: Annotated[str | None, typer.Option(help="export: only these, e.g. memory.deleted")] = None,
    subject: Annotated[str | None, typer.Option(help="export: only about this, e.g. agent/walker")] = None,
    after: Annotated[int | None, typer.Option(metavar="SEQ", help="export: only records after this one")] = None,
    user: Annotated[
        str | None, typer.Option(metavar="ID", help="erase: a person, by the application's id or the pseudonym")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="erase: an agent")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="erase: do not ask")] = False,
) -> str:
    belongs = {"export": ("action", "subject", "after", "output"), "erase": ("user", "agent", "yes", "output")}
    given = {"action": action, "subject": subject, "after": after, "user": user, "agent": agent, "yes": yes or None}
    for option, value in (given | {"output": output}).items():
        if value is not None and option not in belongs.get(what, ()):
            of = next(verb for verb, options in belongs.items() if option in options)
            raise objects.CommandError(f"--{option} belongs to `audit {of}`, not to `audit {what}`: leave it out")
    if what == "verify":
        return _verify(plane)
    if what == "export":
        only = {name: value for name, value in (("action", action), ("subject", subject)) if value is not None}
        return _export(plane, output, only, after or 0)
    return _erase(plane, output, user, agent, yes)


def _verify(plane: data_plane_access.DataPlaneAccess) -> str:
    report: objects.Object = plane.ask("GET", "/api/v1/audit/verify", seconds=VERIFY_SECONDS)
    problem = report.get("problem")
    if problem:
        raise objects.CommandError(
            f"the audit chain of namespace {plane.namespace} is not whole: {problem['message']} "
            f"(first bad record {problem['seq']}, {problem['kind']}; {report['records']} records before it are good)"
        )
    waiting = f"{report['pending']} records are committed and not in the chain yet" if report["pending"] else None
    return objects.rows(
        [
            ("chain", f"namespace {plane.namespace}: {report['records']} records, whole"),
            ("pending", waiting),
            ("head", report["head"] if report["records"] else None),
        ]
    )


def _export(plane: data_plane_access.DataPlaneAccess, output: str | None, only: dict[str, str], after: int) -> str:
    count, following = 0, after
    with _sink(output) as sink:
        while following is not None:
            query = {**only, "after": str(following), "limit": str(PAGE)}
            page = plane.ask("GET", "/api/v1/audit/records", query)
            for record in page["records"]:
                sink.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            count, following = count + len(page["records"]), page["next"]
    return f"{count} records written to {output}" if output else ""


def _erase(
    plane: data_plane_access.DataPlaneAccess, output: str | None, user: str | None, agent: str | None, yes: bool
) -> str:
    if (user is None) == (agent is None):
        raise objects.CommandError("name exactly one of --user and --agent: all cannot be erased in one go")
    kind, name = ("user_id", user) if user is not None else ("agent_id", agent)
    named = f"{'person' if user is not None else 'agent'} {name!r} in namespace {plane.namespace}"
    if not yes:
        question = f"This erases {ERASED} of {named} for good."
        confirm(question, f"this would erase {ERASED} of {named} for good", str(name), "nothing was erased")
    with _sink(output) as sink:  # opened first, so that an unwritable file is found before anything is erased
        receipt = plane.ask("POST", "/api/v1/erasure", body={kind: name}, seconds=ERASE_SECONDS)
        sink.write(json.dumps(receipt, ensure_ascii=False, indent=2) + "\n")
    gone = sum(receipt["rows"].values())
    where = f"; the receipt is in {output}" if output else ""
    print(f"{named}: {gone} rows erased, audit record {receipt['audit_seq']}{where}", file=sys.stderr)
    return ""


def confirm(question: str, effect: str, name: str, otherwise: str) -> None:
    """Ask for the name on a terminal. Raises CommandError without the right answer, or without a terminal."""
    if not sys.stdin.isatty():
        raise objects.CommandError(f"{effect}: say so with --yes")
    print(f"{question} Type {name} to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise objects.CommandError(otherwise)


@contextmanager
def _sink(path: str | None) -> Iterator[IO[str]]:
    """Standard output, or a new file; an existing one is never overwritten."""
    if path is None:
        yield sys.stdout
        return
    try:
        sink: IO[Any] = open(path, "x", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise objects.CommandError(f"--output {path}: {error.strerror}; name a new file") from error
    with sink:
        yield sink
