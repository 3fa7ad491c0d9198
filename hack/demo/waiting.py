"""Waiting with a deadline and a reason."""

import time
from collections.abc import Callable
from typing import TypeVar

from demo.narrator import StoryFailedError
from toolkit.work_groups import current

T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], seconds: float, every: float = 1.0) -> T:
    """Polls `look` until it returns something.

    Raises:
        StoryFailedError: nothing came within `seconds`.
        Ended: something next to the story failed.
    """
    deadline = time.monotonic() + seconds
    while True:
        current().check()
        state = look()
        if state is not None:
            return state
        if time.monotonic() > deadline:
            raise StoryFailedError(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(every)
