"""`kubectl learnloop report`: what runs and rollouts did in a day or a week, as markdown or JSON."""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_api.names import LABEL_AGENT
from learnloop_common.foreign_text import figure, interval, plain
from learnloop_operator.cli.access import data_plane
from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.access.data_plane import DataPlaneAccess
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.text.aligned_rows import condition
from learnloop_operator.cli.text.aligned_rows import status as status_of
from learnloop_operator.core.durations import text as duration
from learnloop_operator.core.times import parse

NAME = "report"
PERIODS = {"day": timedelta(days=1), "week": timedelta(days=7), "all": timedelta(days=36500)}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Of what, how far back, and how."""
    parser.add_argument("name", nargs="?", help="an agent, run or rollout; left out, all of the namespace")
    parser.add_argument("--since", choices=PERIODS, default="week", help="how far back (%(default)s)")
    parser.add_argument("-o", "--output", choices=("markdown", "json"), default="markdown", help="(%(default)s)")
    data_plane.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """The report."""
    jobs = [body for body in cluster.every("trainingjobs") if _asked(body, options.name)]
    rollouts = [body for body in cluster.every("modeldeployments") if _asked(body, options.name)]
    if options.name and not jobs and not rollouts:
        raise CommandError(f"{options.name!r}: no agent, run or rollout of this name in {cluster.namespace}")
    now = datetime.now(UTC)
    since = now - PERIODS[options.since]
    plane = DataPlaneAccess(cluster, options)
    record = [event for body in rollouts for event in _record(plane, body["metadata"]["name"], since)]
    found = report(cluster.namespace, options.name, jobs, rollouts, record, since, now)
    return json.dumps(found, indent=2, ensure_ascii=False) if options.output == "json" else markdown(found)


def _record(plane: DataPlaneAccess, name: str, since: datetime) -> Iterator[Object]:
    """Promotions and rollbacks of one rollout, as the data plane keeps them: a status forgets them with the next."""
    query: dict[str, str] = {}
    while True:
        page = plane.ask("GET", f"/api/v1/models/{name}/deployed", query)
        for event in page["deployed"]:
            if not _within(event["deployed_at"], since):
                return
            yield event
        if not page.get("next"):
            return
        query = {"after": page["next"]}


def report(
    namespace: str,
    name: str | None,
    jobs: Iterable[Object],
    rollouts: Iterable[Object],
    record: Iterable[Object],
    since: datetime,
    now: datetime,
) -> dict[str, Any]:
    """All of it as data: runs that ended, models that came to serve or were rolled back, what waits for a person.

    Args:
        record: wire.ModelDeployed of these rollouts. The first model of a rollout was promoted over none.
    """
    runs = [_run(body) for body in jobs if _within(status_of(body).get("finishedAt"), since)]
    events = sorted(record, key=lambda event: str(event["deployed_at"]))
    return {
        "namespace": namespace,
        "of": name,
        "since": since.isoformat(timespec="seconds"),
        "until": now.isoformat(timespec="seconds"),
        "runs": sorted(runs, key=lambda item: str(item["finishedAt"])),
        "promoted": [_event(one) for one in events if one["event"] == "deployed" and one.get("previous_revision")],
        "rolledBack": [_event(one) for one in events if one["event"] == "rolled_back"],
        "waiting": [found for body in rollouts if (found := _waits(body, namespace)) is not None],
    }


def markdown(found: dict[str, Any]) -> str:
    """The report for people."""
    whose = found["of"] or f"namespace {found['namespace']}"
    good = [item for item in found["runs"] if item["result"] == "Validated"]
    bad = [item for item in found["runs"] if item["result"] != "Validated"]
    return "\n".join(
        [
            f"# {whose}, {found['since'][:10]} to {found['until'][:10]}",
            "",
            f"{len(good)} of {_counted(found['runs'], 'run')} {'was' if len(good) == 1 else 'were'} proven, "
            f"{_counted(found['promoted'], 'promotion')}, {_counted(found['rolledBack'], 'rollback')}, "
            f"{len(found['waiting'])} waiting for a person.",
            *_part("What got better", [_better(item) for item in good]),
            *_part("What was refused or failed", [f"**{item['run']}**: {plain(item['why'])}" for item in bad]),
            *_part("What was promoted", map(_line, found["promoted"])),
            *_part("What was rolled back", map(_line, found["rolledBack"])),
            *_part(
                "What waits for a person",
                [f"**{item['rollout']}**: {plain(item['why'])} (`{item['command']}`)" for item in found["waiting"]],
            ),
        ]
    )


def _part(title: str, lines: Iterable[str]) -> list[str]:
    shown = [f"- {line}" for line in lines]
    return ["", f"## {title}", "", *shown] if shown else []


def _run(body: Object) -> dict[str, Any]:
    status = status_of(body)
    started, ended = parse(status.get("startedAt")), parse(status.get("finishedAt"))
    return {
        "run": body["metadata"]["name"],
        "result": status.get("phase"),
        "why": condition(body, "Ready").get("message", ""),
        "algorithm": body["spec"].get("algorithm"),
        "finishedAt": status.get("finishedAt"),
        "seconds": (ended - started).total_seconds() if started and ended else None,
        "attempts": status.get("attempts"),
        "preemptions": status.get("preemptions") or 0,
        "evaluation": status.get("evaluation"),
        "baseline": status.get("baseline"),
        "gates": status.get("gates") or [],
        "artifact": status.get("artifact"),
    }


def _better(item: dict[str, Any]) -> str:
    new, old = item["evaluation"] or {}, item["baseline"] or {}
    took = f", {duration(item['seconds'])}" if item["seconds"] is not None else ""
    if not new or not old:
        return f"**{item['run']}** ({item['algorithm']}{took}): {plain(item['why'])}"
    gain = new["mean"] - old["mean"]
    return (
        f"**{item['run']}** ({item['algorithm']}{took}): held-out return {_interval(new)}, "
        f"{figure(abs(gain))} {'more' if gain >= 0 else 'less'} than {_interval(old)} before"
    )


def _interval(figures: dict[str, Any]) -> str:
    return interval(figures["mean"], figures["ciLow"], figures["ciHigh"])


def _event(event: Object) -> dict[str, Any]:
    return {
        "rollout": event["model_deployment"],
        "revision": event["revision"],
        "at": event["deployed_at"],
        "why": event.get("verdict") or event.get("reason") or "",
    }


def _line(item: dict[str, Any]) -> str:
    return f"**{item['rollout']}** {plain(str(item['revision']))}: {plain(str(item['why']))}"


def _counted(items: Sequence[Any], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _waits(body: Object, namespace: str) -> dict[str, Any] | None:
    """A rollout that only a person lets on: held by one, or at a step that asks for approval."""
    status, name = status_of(body), body["metadata"]["name"]
    if status.get("phase") != "Paused":
        return None
    held = (status.get("hand") or {}).get("verb") == "pause"
    verb = "resume" if held else "approve"
    command = f"kubectl learnloop {verb} {name} -n {namespace}"
    return {"rollout": name, "why": status.get("verdict") or "", "command": command}


def _within(moment: str | None, since: datetime) -> bool:
    found = parse(moment)
    return found is not None and found >= since


def _asked(body: Object, name: str | None) -> bool:
    metadata = body["metadata"]
    return name in (None, metadata["name"], (metadata.get("labels") or {}).get(LABEL_AGENT))
