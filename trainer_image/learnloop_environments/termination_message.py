"""The last words of a rank: where the kubelet, and through the store everybody, finds why it ended."""

import os
from collections.abc import Callable
from typing import NoReturn

from learnloop_common import process_end
from learnloop_environments.errors import TrainerError

_listeners: list[Callable[[str], None]] = []


def on_abandon(listener: Callable[[str], None]) -> None:
    """Also tell `listener` when a rank abandons itself."""
    _listeners[:] = [listener]


def abandon(error: TrainerError) -> NoReturn:
    """End this process from a thread: its main thread is stuck where no exception can reach it."""
    process_end.leave(str(error))
    for listener in _listeners:
        listener(str(error))
    os._exit(error.exit_code)
