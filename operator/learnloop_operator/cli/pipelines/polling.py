"""Waiting in a pipeline: look every few seconds, say each new sentence on stderr, end in time."""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from learnloop_api.foreign_text import one_line

T = TypeVar("T")

POLL_SECONDS = 5.0


def poll(look: Callable[[], tuple[T | None, str]], timeout: float) -> T | None:
    """What `look` finds; None after `timeout` seconds.

    `look` returns what was waited for, or None, and a sentence for people; an empty one is not said.
    """
    until, said = time.monotonic() + timeout, ""
    while True:
        found, sentence = look()
        if found is not None:
            return found
        if sentence and sentence != said:
            said = sentence
            print(one_line(sentence), file=sys.stderr, flush=True)
        left = until - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(POLL_SECONDS, left))
