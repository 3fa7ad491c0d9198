"""`get`: agents, runs and rollouts in one table, once or as they change."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated

import typer

from learnloop_operator.cli.objects import SHORT, Cluster, CommandError, Object
from learnloop_operator.cli.text import HEAD, Row, loop_line, loop_row, table

LIST_SECONDS = 10.0
PROBLEM_SECONDS = 8.0
"""Seconds that the API server may be away before the watch fails."""


def get(
    cluster: Cluster,
    name: Annotated[
        str | None, typer.Argument(help="one agent, run or rollout; left out, all of the namespace")
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="redraw; in a pipe, one line for each change")] = False,
) -> str:
    """The table, or nothing after a watch that was interrupted."""
    if watch:
        return _watch(cluster, name)
    return table(HEAD, _rows({plural: cluster.every(plural) for plural in SHORT}, name, datetime.now(UTC)))


def changed_rows(rows: list[Row], shown: dict[str, Row], now: datetime) -> Iterator[str]:
    """One line for each row that is new or differs from `shown`, apart from its ETA."""
    for cells in rows:
        steady = (*cells[:5], *cells[6:])
        if shown.get(cells[0]) != steady:
            shown[cells[0]] = steady
            yield f"{now:%H:%M:%S} {loop_line(cells)}"
    for gone in set(shown) - {cells[0] for cells in rows}:
        del shown[gone]
        yield f"{now:%H:%M:%S} {gone} is gone"


def _rows(kinds: Mapping[str, Sequence[Object]], name: str | None, now: datetime) -> list[Row]:
    return [
        loop_row(plural, body, now)
        for plural in SHORT
        for body in sorted(kinds[plural], key=lambda one: str(one["metadata"]["name"]))
        if _named(plural, body["metadata"]["name"], name)
    ]


def _named(plural: str, key: str, name: str | None) -> bool:
    """Whether the object is the named one, or a run of it."""
    return name in (None, key) or (plural == "trainingjobs" and key.rpartition("-")[0] == name)


def _watch(cluster: Cluster, name: str | None) -> str:
    """Draws on a terminal after each change and each second; in a pipe it prints each changed row once.

    Raises:
        CommandError: a kind cannot be read, or the API server has not answered for a while.
    """
    from rich.live import Live
    from rich.text import Text

    from learnloop_operator.cli.watching import ChangeLog, ClusterWatch, WatchedNamespaces

    log, mark, shown = ChangeLog(), None, dict[str, Row]()
    changes = ClusterWatch(cluster, log, WatchedNamespaces((cluster.namespace,)), SHORT)
    live = Live(auto_refresh=False, vertical_overflow="crop") if sys.stdout.isatty() else None
    changes.start(pulse=False)
    changes.wait_for_lists(LIST_SECONDS)
    good = time.monotonic()
    try:
        with live or nullcontext():
            while True:
                problems = list(changes.problems.values())
                good = good if problems else time.monotonic()
                if time.monotonic() - good > PROBLEM_SECONDS:
                    raise CommandError(problems[0])
                now = datetime.now(UTC)
                rows = _rows({plural: log.objects(plural) for plural in SHORT}, name, now)
                if live is not None:
                    size = os.get_terminal_size()
                    live.update(Text(table(HEAD, rows[: size.lines - 2], size.columns)), refresh=True)
                else:
                    for line in changed_rows(rows, shown, now):
                        print(line, flush=True)
                mark = log.read(mark, 1.0).mark
    except KeyboardInterrupt:
        return ""
    finally:
        changes.stop()
