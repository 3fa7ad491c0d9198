"""`audit verify|export|erase|exploration`: the audit chain of the namespace, and the right to erasure."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Annotated, Any, Literal

import typer

from learnloop_operator.cli.data_plane import DataPlaneAccess
from learnloop_operator.cli.objects import Cluster, CommandError, Object
from learnloop_operator.cli.text import rows

PAGE = 1000
VERIFY_SECONDS, ERASE_SECONDS = 120.0, 310.0
ERASED = "all episodes, steps, rewards, feedback, memories, recalls and events"


def audit(
    cluster: Cluster,
    plane: DataPlaneAccess,
    what: Annotated[
        Literal["verify", "export", "erase", "exploration"],
        typer.Argument(help="export writes NDJSON, erase a receipt, exploration explored actions checked by the chain"),
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
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="erase, exploration: an agent")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="erase: do not ask")] = False,
) -> str:
    """Verify, export or erase."""
    belongs = {"action": "export", "subject": "export", "after": "export", "user": "erase", "yes": "erase"}
    given = {"action": action, "subject": subject, "after": after, "user": user, "yes": yes or None}
    for option, of in belongs.items():
        if of != what and given[option] is not None:
            raise CommandError(f"--{option} belongs to `audit {of}`, not to `audit {what}`: leave it out")
    if agent is not None and what not in ("erase", "exploration"):
        raise CommandError(f"--agent belongs to `audit erase` and `audit exploration`, not to `audit {what}`")
    if what == "verify":
        if output:
            raise CommandError("--output belongs to `audit export` and `audit erase`: leave it out")
        return _verify(plane)
    if what == "export":
        only = {name: value for name, value in (("action", action), ("subject", subject)) if value is not None}
        return _export(plane, output, only, after or 0)
    if what == "exploration":
        return _exploration(plane, output, agent)
    return _erase(plane, output, user, agent, yes)


def _verify(plane: DataPlaneAccess) -> str:
    report: Object = plane.ask("GET", "/api/v1/audit/verify", seconds=VERIFY_SECONDS)
    problem = report.get("problem")
    if problem:
        raise CommandError(
            f"the audit chain of namespace {plane.namespace} is not whole: {problem['message']} "
            f"(first bad record {problem['seq']}, {problem['kind']}; {report['records']} records before it are good)"
        )
    signed = f"up to record {report['signed_up_to']}, by {report['checkpoints']} signatures"
    waiting = f"{report['pending']} records are committed and not in the chain yet" if report["pending"] else None
    return rows(
        [
            ("chain", f"namespace {plane.namespace}: {report['records']} records, whole"),
            ("signed", signed if report["signed_up_to"] else "not yet: wait a minute, or set an audit key"),
            ("pending", waiting),
            ("head", report["head"] if report["records"] else None),
        ]
    )


def _export(plane: DataPlaneAccess, output: str | None, only: dict[str, str], after: int) -> str:
    count = 0
    with _sink(output) as sink:
        for record in _records(plane, only, after):
            sink.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            count += 1
    return f"{count} records written to {output}" if output else ""


def _records(plane: DataPlaneAccess, only: dict[str, str], after: int) -> Iterator[Object]:
    following: int | None = after
    while following is not None:
        page = plane.ask("GET", "/api/v1/audit/records", {**only, "after": str(following), "limit": str(PAGE)})
        yield from page["records"]
        following = page["next"]


def _exploration(plane: DataPlaneAccess, output: str | None, agent: str | None) -> str:
    """Every explored action, newest first. Ends at an episode that differs from the chain."""
    if agent is None:
        raise CommandError("--agent: missing; name the agent whose explored actions are wanted")
    logged: dict[str, str] = {}
    for record in _records(plane, {"action": "exploration.logged", "subject": f"agent/{agent}"}, 0):
        logged |= record["detail"]["episodes"]
    before: dict[str, str] = {}
    count = young = 0
    with _sink(output) as sink:
        while True:
            page = plane.ask("GET", f"/api/v1/agents/{agent}/exploration", {"limit": "50"} | before)
            for episode in page["episodes"]:
                digest = logged.pop(episode["trajectory_id"], None)
                if digest is not None and digest != episode["sha256"]:
                    raise CommandError(
                        f"episode {episode['trajectory_id']}: its explored actions are not those that the audit chain "
                        f"names: {episode['sha256']} and not {digest}"
                    )
                young += digest is None
                for action in episode["actions"]:
                    line = {"trajectory_id": episode["trajectory_id"], **action, "in_chain": digest is not None}
                    sink.write(json.dumps(line, separators=(",", ":")) + "\n")
                    count += 1
            if page["next"] is None:
                break
            before = {"before": str(page["next"])}
    if young:
        why = "they are sealed in a moment"
        print(f"{young} episodes are not in the chain: {why}", file=sys.stderr)
    if logged:
        print(f"{len(logged)} episodes that the chain names are gone: erased, or past their retention", file=sys.stderr)
    return f"{count} explored actions written to {output}" if output else ""


def _erase(plane: DataPlaneAccess, output: str | None, user: str | None, agent: str | None, yes: bool) -> str:
    if (user is None) == (agent is None):
        raise CommandError("name exactly one of --user and --agent: all cannot be erased in one go")
    kind, name = ("user_id", user) if user is not None else ("agent_id", agent)
    named = f"{'person' if user is not None else 'agent'} {name!r} in namespace {plane.namespace}"
    if not yes:
        question = f"This erases {ERASED} of {named} for good."
        confirm(question, f"this would erase {ERASED} of {named} for good", str(name), "nothing was erased")
    with _sink(output) as sink:  # opened first, so that an unwritable file is found before anything is erased
        receipt = plane.ask("POST", "/api/v1/erasure", body={kind: name}, seconds=ERASE_SECONDS)
        sink.write(json.dumps(receipt, ensure_ascii=False, indent=2) + "\n")
    if not receipt.get("signature"):
        print("the receipt is not signed: the data plane has no audit key", file=sys.stderr)
    gone = sum(receipt["rows"].values())
    where = f"; the receipt is in {output}" if output else ""
    print(f"{named}: {gone} rows erased, audit record {receipt['audit_seq']}{where}", file=sys.stderr)
    return ""


def confirm(question: str, effect: str, name: str, otherwise: str) -> None:
    """Ask for the name on a terminal. Raises CommandError without the right answer, or without a terminal."""
    if not sys.stdin.isatty():
        raise CommandError(f"{effect}: say so with --yes")
    print(f"{question} Type {name} to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise CommandError(otherwise)


@contextmanager
def _sink(path: str | None) -> Iterator[IO[str]]:
    """Standard output, or a new file; an existing one is never overwritten."""
    if path is None:
        yield sys.stdout
        return
    try:
        sink: IO[Any] = open(path, "x", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"--output {path}: {error.strerror}; name a new file") from error
    with sink:
        yield sink
