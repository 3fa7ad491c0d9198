"""Waiting in a pipeline: look every few seconds, say each new sentence on stderr, end in time."""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from learnloop_common.foreign_text import one_line
from learnloop_operator.cli.errors import NoAnswerError

T = TypeVar("T")

POLL_SECONDS = 5.0
AWAY_SECONDS = 300.0
"""So long the API server may be away while a run goes on: an upgrade of it fails no pipeline."""


def poll(look: Callable[[], tuple[T | None, str]], timeout: float) -> T | None:
    """What `look` finds; None after `timeout` seconds.

    `look` returns what was waited for, or None, and a sentence for people; an empty one is not said.

    Raises:
        NoAnswerError: the API server has been away for AWAY_SECONDS, or is when the time is over.
    """
    until, said = time.monotonic() + timeout, ""
    away: float | None = None
    while True:
        try:
            found, sentence = look()
            away = None
        except NoAnswerError as error:
            now = time.monotonic()
            away = now if away is None else away
            if now >= until or now - away >= AWAY_SECONDS:
                raise
            found, sentence = None, str(error)
        if found is not None:
            return found
        if sentence and sentence != said:
            said = sentence
            print(one_line(sentence), file=sys.stderr, flush=True)
        left = until - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(POLL_SECONDS, left))
