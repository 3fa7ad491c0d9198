"""`kubectl learnloop audit verify|export|erase`: the audit chain of the namespace, and the right to erasure."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from learnloop_operator.cli.access import data_plane
from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.access.data_plane import DataPlaneAccess
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.text.aligned_rows import rows

NAME = "audit"
PAGE = 1000
VERIFY_SECONDS, ERASE_SECONDS = 120.0, 310.0
ERASED = "all episodes, steps, rewards, feedback, memories, recalls and events"
_OF = {"export": ("action", "subject", "after"), "erase": ("user", "yes")}
_AGENT = ("erase", "exploration")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, to what, and where the answer goes."""
    parser.add_argument(
        "what",
        choices=("verify", "export", "erase", "exploration"),
        help="export writes NDJSON, erase a receipt; exploration writes explored actions, checked by the chain",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="a new file for the export or the receipt (stdout)")
    parser.add_argument("--action", help="export: only these, e.g. memory.deleted")
    parser.add_argument("--subject", help="export: only about this, e.g. agent/walker")
    parser.add_argument("--after", type=int, metavar="SEQ", help="export: only what follows this record")
    parser.add_argument("--user", metavar="ID", help="erase: a person, as the application knows them, or the pseudonym")
    parser.add_argument("--agent", metavar="NAME", help="erase, exploration: an agent")
    parser.add_argument("--yes", action="store_true", default=None, help="erase: do not ask")
    data_plane.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Verify, export or erase."""
    for what, names in _OF.items():
        for name in names:
            if what != options.what and getattr(options, name) is not None:
                raise CommandError(f"--{name} belongs to `audit {what}`, not to `audit {options.what}`: leave it out")
    if options.agent is not None and options.what not in _AGENT:
        raise CommandError(f"--agent belongs to `audit erase` and `audit exploration`, not to `audit {options.what}`")
    return _DO[options.what](DataPlaneAccess(cluster, options), options)


def _verify(plane: DataPlaneAccess, options: argparse.Namespace) -> str:
    if options.output:
        raise CommandError("--output belongs to `audit export` and `audit erase`: leave it out")
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


def _export(plane: DataPlaneAccess, options: argparse.Namespace) -> str:
    count = 0
    with _sink(options.output) as sink:
        for record in _records(plane, options):
            sink.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            count += 1
    return f"{count} records written to {options.output}" if options.output else ""


def _records(plane: DataPlaneAccess, options: argparse.Namespace) -> Iterator[Object]:
    only = {name: value for name in ("action", "subject") if (value := getattr(options, name)) is not None}
    after: int | None = options.after or 0
    while after is not None:
        page = plane.ask("GET", "/api/v1/audit/records", {**only, "after": str(after), "limit": str(PAGE)})
        yield from page["records"]
        after = page["next"]


def _exploration(plane: DataPlaneAccess, options: argparse.Namespace) -> str:
    """Every explored action, newest first; an episode that is not what the chain says ends it."""
    if options.agent is None:
        raise CommandError("--agent: missing; name the agent whose explored actions are wanted")
    logged: dict[str, str] = {}
    wanted = argparse.Namespace(action="exploration.logged", subject=f"agent/{options.agent}", after=0)
    for record in _records(plane, wanted):
        logged |= record["detail"]["episodes"]
    before: dict[str, str] = {}
    count = young = 0
    with _sink(options.output) as sink:
        while True:
            page = plane.ask("GET", f"/api/v1/agents/{options.agent}/exploration", {"limit": "50"} | before)
            for episode in page["episodes"]:
                known = logged.pop(episode["trajectory_id"], None)
                if known is not None and known != episode["sha256"]:
                    raise CommandError(
                        f"episode {episode['trajectory_id']}: its explored actions are not those that the audit chain "
                        f"names: {episode['sha256']} and not {known}"
                    )
                young += known is None
                for action in episode["actions"]:
                    told = {"trajectory_id": episode["trajectory_id"], **action, "in_chain": known is not None}
                    sink.write(json.dumps(told, separators=(",", ":")) + "\n")
                    count += 1
            if page["next"] is None:
                break
            before = {"before": str(page["next"])}
    if young:
        why = "sealed in a moment, or stored by a release before"
        print(f"{young} episodes are not in the chain: {why}", file=sys.stderr)
    if logged:
        print(f"{len(logged)} episodes that the chain names are gone: erased, or past their retention", file=sys.stderr)
    return f"{count} explored actions written to {options.output}" if options.output else ""


def _erase(plane: DataPlaneAccess, options: argparse.Namespace) -> str:
    if (options.user is None) == (options.agent is None):
        raise CommandError("name exactly one of --user and --agent: there is no way to erase all")
    kind, name = ("user_id", options.user) if options.user is not None else ("agent_id", options.agent)
    named = f"{'person' if options.user is not None else 'agent'} {name!r} in namespace {plane.namespace}"
    if not options.yes:
        _confirm(named, name)
    with _sink(options.output) as sink:  # opened first: a receipt that cannot be kept is no reason to find out later
        receipt = plane.ask("POST", "/api/v1/erasure", body={kind: name}, seconds=ERASE_SECONDS)
        sink.write(json.dumps(receipt, ensure_ascii=False, indent=2) + "\n")
    if not receipt.get("signature"):
        print("the receipt is not signed: the data plane has no audit key", file=sys.stderr)
    gone = sum(receipt["rows"].values())
    where = f"; the receipt is in {options.output}" if options.output else ""
    print(f"{named}: {gone} rows erased, audit record {receipt['audit_seq']}{where}", file=sys.stderr)
    return ""


def _confirm(named: str, name: str) -> None:
    if not sys.stdin.isatty():
        raise CommandError(f"this would erase {ERASED} of {named} for good: say so with --yes")
    print(f"This erases {ERASED} of {named} for good. Type {name} to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise CommandError("nothing was erased")


@contextmanager
def _sink(path: str | None) -> Iterator[IO[str]]:
    """Standard output, or a new file: nothing that was exported before is overwritten."""
    if path is None:
        yield sys.stdout
        return
    try:
        sink: IO[Any] = open(path, "x", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"--output {path}: {error.strerror}; name a new file") from error
    with sink:
        yield sink


_DO = {"verify": _verify, "export": _export, "erase": _erase, "exploration": _exploration}
