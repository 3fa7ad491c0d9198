"""The last words of a rank: where the kubelet, and through the store everybody, finds why it ended."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from learnloop_environments.errors import TrainerError

TERMINATION_LOG = "LEARNLOOP_TERMINATION_LOG"
_listeners: list[Callable[[str], None]] = []


def testify(sentence: str) -> None:
    """Leave the reason where the kubelet finds it."""
    with contextlib.suppress(OSError):
        Path(os.environ.get(TERMINATION_LOG, "/dev/termination-log")).write_text(f"{sentence}\n", encoding="utf-8")
    print(sentence, file=sys.stderr, flush=True)


def on_abandon(listener: Callable[[str], None]) -> None:
    """Also tell `listener` when a rank abandons itself."""
    _listeners[:] = [listener]


def abandon(error: TrainerError) -> NoReturn:
    """End this process from a thread: its main thread is stuck where no exception can reach it."""
    testify(str(error))
    for listener in _listeners:
        listener(str(error))
    os._exit(error.exit_code)
