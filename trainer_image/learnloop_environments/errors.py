"""Errors for users, and the termination message of the pod."""

import os
from collections.abc import Callable
from typing import NoReturn

from learnloop_common import termination_message

EXIT_NEVER_RETRY = 2
EXIT_COUNTED = 70  # EX_SOFTWARE: ends the whole attempt, which the operator counts
EXIT_RETRY = 203  # 128 + EX_TEMPFAIL


class TrainerError(Exception):
    """A run that ends for a reason a human can read. The text is one sentence."""

    exit_code = EXIT_RETRY


class ConfigError(TrainerError):
    """The order cannot be carried out as written; trying again would end the same way."""

    exit_code = EXIT_NEVER_RETRY

    def __init__(self, field: str, value: object, problem: str, fix: str) -> None:
        """Name the field, quote the (shortened) value, say what is wrong and what to do instead."""
        text = " ".join(str(value).split())
        shown = text if len(text) <= 120 else f"{text[:117]}..."
        super().__init__(f"{field}: {shown!r} {problem}; {fix}")
        self.problem = problem


class EnvironmentFailed(TrainerError):
    """A user's environment raised or hung: worth another attempt, but not endless ones."""

    exit_code = EXIT_COUNTED


class EnvironmentMistaken(TrainerError):
    """The code of a user's environment is wrong: the same call would fail again."""

    exit_code = EXIT_NEVER_RETRY


_listeners: list[Callable[[str], None]] = []


def on_abandon(listener: Callable[[str], None]) -> None:
    """Also tell `listener` when a rank abandons itself."""
    _listeners[:] = [listener]


def abandon(error: TrainerError) -> NoReturn:
    """End this process from a thread: its main thread is stuck where no exception can reach it."""
    termination_message.leave(str(error))
    for listener in _listeners:
        listener(str(error))
    os._exit(error.exit_code)
