"""`kubectl learnloop watch AGENT`: an agent's loop as it happens: its run, its rollout, each decision as it falls."""

import argparse
import os
import sys
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

from learnloop_common.foreign_text import one_line
from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.access.list_and_watch import Follower
from learnloop_operator.cli.text.aligned_rows import condition
from learnloop_operator.cli.text.aligned_rows import status as status_of
from learnloop_operator.cli.text.loop_table import SHORT, Row, row, table

NAME = "watch"
HOME_AND_CLEAR = "\x1b[H\x1b[J"
REMEMBERED = 200
Kinds = dict[str, dict[str, Object]]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which agent."""
    parser.add_argument("name", help="a LearningAgent")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Redraws a terminal; in a pipe it prints each new sentence once. Ends with Ctrl-C."""
    cluster.get("learningagents", options.name)
    follower, kinds, live = Follower(cluster, SHORT), Kinds(), sys.stdout.isatty()
    story, told = deque[str](maxlen=REMEMBERED), dict[str, str]()
    follower.start()
    try:
        while True:
            change = follower.next(1.0)
            if change is not None:
                kinds[change[0]] = change[1]
            now = datetime.now(UTC)
            fresh = list(news(options.name, kinds, told, now)) if set(kinds) == set(SHORT) else []
            story.extend(fresh)
            if live:
                size = os.get_terminal_size()
                print(HOME_AND_CLEAR + screen(options.name, kinds, story, now, size), flush=True)
            else:
                for line in fresh:
                    print(line, flush=True)
    except KeyboardInterrupt:
        return ""
    except BrokenPipeError:
        # Whoever read has read enough, e.g. `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ""
    finally:
        follower.stop()


def screen(name: str, kinds: Kinds, story: deque[str], now: datetime, size: os.terminal_size) -> str:
    """The table of what is under way, then the newest sentences that fit below it."""
    shown = table(_rows(name, kinds, now), size.columns)
    room = max(0, size.lines - shown.count("\n") - 4)
    said = [line[: size.columns] for line in list(story)[-room:]] if room else []
    return "\n".join([shown, "", *said])


def news(name: str, kinds: Kinds, told: dict[str, str], now: datetime) -> Iterator[str]:
    """A line for each object whose phase, or the reason of it, is another than the last time; `told` remembers."""
    for plural, body in _mine(name, kinds):
        key = f"{SHORT[plural]}/{body['metadata']['name']}"
        status, ready = status_of(body), condition(body, "Ready")
        stands = " ".join(
            str(part)
            for part in (status.get("phase"), status.get("stepText"), ready.get("reason"), status.get("weight"))
            if part is not None
        )
        if told.get(key) == stands:
            continue
        told[key] = stands
        sentence = status.get("verdict") or ready.get("message") or "the operator has not looked at it yet"
        yield f"{now:%H:%M:%S} {key} {status.get('phase') or ''}: {one_line(sentence)}"


def _rows(name: str, kinds: Kinds, now: datetime) -> list[Row]:
    return [row(plural, body, now) for plural, body in _mine(name, kinds)]


def _mine(name: str, kinds: Kinds) -> Iterator[tuple[str, Object]]:
    """The agent, its newest run, its rollout."""
    for plural in ("learningagents", "modeldeployments"):
        body = kinds.get(plural, {}).get(name)
        if body is not None:
            yield plural, body
    number = (status_of(kinds.get("learningagents", {}).get(name, {})).get("lastTraining") or {}).get("name")
    job = kinds.get("trainingjobs", {}).get(str(number))
    if job is not None:
        yield "trainingjobs", job
