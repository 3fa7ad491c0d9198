"""`get` and `watch`: agents, runs and rollouts in one table, and an agent's loop as it happens."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from queue import Empty, Queue
from typing import Annotated

import typer

from learnloop_common.foreign_text import one_line
from learnloop_operator.cli.objects import SHORT, Cluster, CommandError, Object, VersionGoneError, condition
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.cli.text import HEAD, Row, loop_line, loop_row, table

REMEMBERED = 200
Kinds = dict[str, dict[str, Object]]


def get(
    cluster: Cluster,
    name: Annotated[
        str | None, typer.Argument(help="one agent, run or rollout; left out, all of the namespace")
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="redraw; in a pipe, one line for each change")] = False,
) -> str:
    """The table, or nothing after a watch that was interrupted."""
    if not watch:
        return table(HEAD, _rows({plural: cluster.listed(plural)[1] for plural in SHORT}, name, datetime.now(UTC)))
    shown = dict[str, Row]()
    return _follow(
        cluster,
        lambda kinds, now, size: table(HEAD, _rows(kinds, name, now)[: size.lines - 2], size.columns),
        lambda kinds, now: changed_rows(_rows(kinds, name, now), shown, now),
    )


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


def _rows(kinds: Kinds, name: str | None, now: datetime) -> list[Row]:
    return [
        loop_row(plural, body, now)
        for plural in SHORT
        for key, body in sorted(kinds.get(plural, {}).items())
        if name is None or key == name or (plural == "trainingjobs" and key.rpartition("-")[0] == name)
    ]


def watch(cluster: Cluster, name: Annotated[str, typer.Argument(help="a LearningAgent")]) -> str:
    """Redraws a terminal; in a pipe it prints each new sentence once. Ends with Ctrl-C."""
    cluster.get("learningagents", name)
    story, shown = deque[str](maxlen=REMEMBERED), dict[str, str]()

    def fresh(kinds: Kinds, now: datetime) -> list[str]:
        lines = list(news(name, kinds, shown, now)) if set(kinds) == set(SHORT) else []
        story.extend(lines)
        return lines

    return _follow(cluster, lambda kinds, now, size: screen(name, kinds, story, now, size), fresh)


def screen(name: str, kinds: Kinds, story: deque[str], now: datetime, size: os.terminal_size) -> str:
    """The table of the agent, its run and its rollout, then the newest sentences that fit below it."""
    drawn = table(HEAD, [loop_row(plural, body, now) for plural, body in _loop_of(name, kinds)], size.columns)
    room = max(0, size.lines - drawn.count("\n") - 4)
    return "\n".join([drawn, "", *([line[: size.columns] for line in list(story)[-room:]] if room else [])])


def news(name: str, kinds: Kinds, shown: dict[str, str], now: datetime) -> Iterator[str]:
    """A line for each object whose phase, or the reason of it, differs from `shown`."""
    for plural, body in _loop_of(name, kinds):
        key = f"{SHORT[plural]}/{body['metadata']['name']}"
        status, ready = status_of(body), condition(body, "Ready")
        parts = (status.get("phase"), status.get("stepText"), ready.get("reason"), status.get("weight"))
        state = " ".join(str(part) for part in parts if part is not None)
        if shown.get(key) == state:
            continue
        shown[key] = state
        sentence = status.get("verdict") or ready.get("message") or "the operator has not looked at it yet"
        yield f"{now:%H:%M:%S} {key} {status.get('phase') or ''}: {one_line(sentence)}"


def _loop_of(name: str, kinds: Kinds) -> Iterator[tuple[str, Object]]:
    """The agent, its rollout, its newest run."""
    for plural in ("learningagents", "modeldeployments"):
        body = kinds.get(plural, {}).get(name)
        if body is not None:
            yield plural, body
    run = (status_of(kinds.get("learningagents", {}).get(name, {})).get("lastTraining") or {}).get("name")
    job = kinds.get("trainingjobs", {}).get(str(run))
    if job is not None:
        yield "trainingjobs", job


def _follow(
    cluster: Cluster,
    draw: Callable[[Kinds, datetime, os.terminal_size], str],
    lines: Callable[[Kinds, datetime], Iterable[str]],
) -> str:
    """Draws on a terminal after each change and each second; in a pipe it prints new lines alone."""
    from rich.live import Live
    from rich.text import Text

    follower, kinds = Follower(cluster, SHORT), Kinds()
    live = Live(auto_refresh=False, vertical_overflow="crop") if sys.stdout.isatty() else None
    follower.start()
    try:
        with live or nullcontext():
            while True:
                change = follower.next(1.0)
                if change is not None:
                    kinds[change[0]] = change[1]
                now = datetime.now(UTC)
                fresh = list(lines(kinds, now))
                if live is not None:
                    live.update(Text(draw(kinds, now, os.get_terminal_size())), refresh=True)
                else:
                    for line in fresh:
                        print(line, flush=True)
    except KeyboardInterrupt:
        return ""
    except BrokenPipeError:
        # The reader of the pipe has ended, e.g. `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ""
    finally:
        follower.stop()


class Follower:
    """Lists and watches several kinds of the namespace, one thread each. A watch that ends begins with a new list."""

    def __init__(self, cluster: Cluster, plurals: Iterable[str]) -> None:
        self._cluster = cluster
        self._queue: Queue[tuple[str, dict[str, Object]] | CommandError] = Queue()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._follow, args=(plural,), daemon=True) for plural in plurals]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End with the next event; the threads do not keep the process alive."""
        self._stopped.set()

    def next(self, seconds: float) -> tuple[str, dict[str, Object]] | None:
        """A plural and all its objects by name after the next change; None after so many seconds without one.

        Raises:
            CommandError: the API server refuses, or has not answered for a while.
        """
        try:
            change = self._queue.get(timeout=seconds)
        except Empty:
            return None
        if isinstance(change, CommandError):
            raise change
        return change

    def _follow(self, plural: str) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                version, objects = self._cluster.listed(plural)
                self._queue.put((plural, dict(objects)))
                failures = 0
                for kind, body in self._cluster.watch(plural, version):
                    name = body["metadata"].get("name", "")
                    if kind == "DELETED":
                        objects.pop(name, None)
                    elif kind != "BOOKMARK":
                        objects[name] = body
                    self._queue.put((plural, dict(objects)))
                    if self._stopped.is_set():
                        return
            except VersionGoneError:
                continue
            except CommandError as error:
                failures += 1
                if failures >= 5:
                    self._queue.put(error)
                    return
                self._stopped.wait(2.0 ** min(failures, 4) / 4)
