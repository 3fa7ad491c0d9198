"""Waiting with a deadline and a reason."""

import time
from collections.abc import Callable
from typing import TypeVar

from demo.narrator import Narrator, StoryFailedError
from toolkit.work_groups import current

T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], seconds: float, every: float = 1.0) -> T:
    """Polls `look` until it returns something. On a busy machine the story goes on for as long as it has news.

    Raises:
        StoryFailedError: nothing came, and no line was said, within `seconds`; or nothing came in six times as many.
        Ended: something next to the story failed.
    """
    began = time.monotonic()
    while True:
        current().check()
        state = look()
        if state is not None:
            return state
        if time.monotonic() > min(max(began, Narrator.newest), began + 5 * seconds) + seconds:
            raise StoryFailedError(f"{what} did not come: waited {time.monotonic() - began:.0f} s")
        time.sleep(every)
