"""`kubectl learnloop get [-w]`: agents, runs and rollouts in one table, live if asked."""

import argparse
import os
import sys
from datetime import UTC, datetime

from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.access.list_and_watch import Follower
from learnloop_operator.cli.text.loop_table import SHORT, Row, line, row, table

NAME = "get"
HOME_AND_CLEAR = "\x1b[H\x1b[J"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which, and for how long."""
    parser.add_argument("name", nargs="?", help="one agent, run or rollout; left out, all of the namespace")
    parser.add_argument("-w", "--watch", action="store_true", help="redraw; in a pipe, one line for each change")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """The table, or nothing after a watch that was interrupted."""
    if options.watch:
        return _watch(cluster, options.name)
    return table(_rows({plural: cluster.listed(plural)[1] for plural in SHORT}, options.name))


def _watch(cluster: Cluster, name: str | None) -> str:
    follower = Follower(cluster, SHORT)
    kinds: dict[str, dict[str, Object]] = {}
    drawn: dict[str, Row] = {}
    follower.start()
    live = sys.stdout.isatty()
    try:
        while True:
            change = follower.next(1.0)
            if change is not None:
                kinds[change[0]] = change[1]
            rows = _rows(kinds, name)
            if live:
                size = os.get_terminal_size()
                print(f"{HOME_AND_CLEAR}{table(rows[: size.lines - 2], size.columns)}", flush=True)
            elif change is not None:
                _tell(rows, drawn)
    except KeyboardInterrupt:
        return ""
    except BrokenPipeError:
        # Whoever read has read enough, e.g. `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ""
    finally:
        follower.stop()


def _tell(rows: list[Row], told: dict[str, Row]) -> None:
    """One line for each row that is new or says something else."""
    for cells in rows:
        # A clock that ticks is no change.
        steady = (*cells[:5], *cells[6:])
        if told.get(cells[0]) != steady:
            told[cells[0]] = steady
            print(f"{datetime.now(UTC):%H:%M:%S} {line(cells)}", flush=True)
    for gone in set(told) - {cells[0] for cells in rows}:
        del told[gone]
        print(f"{datetime.now(UTC):%H:%M:%S} {gone} is gone", flush=True)


def _rows(kinds: dict[str, dict[str, Object]], name: str | None) -> list[Row]:
    now = datetime.now(UTC)
    return [
        row(plural, body, now)
        for plural in SHORT
        for key, body in sorted(kinds.get(plural, {}).items())
        if name is None or key == name or (plural == "trainingjobs" and key.rpartition("-")[0] == name)
    ]
