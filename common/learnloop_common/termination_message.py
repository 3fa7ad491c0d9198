"""Reports why a process ends: one line, the last of its log, which is also the pod's termination message."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from learnloop_common.untrusted_text import one_line

log = logging.getLogger(__name__)
ENV_TERMINATION_LOG = "LEARNLOOP_TERMINATION_LOG"
MOUNTED = Path("/dev/termination-log")
"""Mounted by the kubelet into each container."""
MAX_CHARACTERS = 2048
MAX_CAUSES = 3
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
"""Escape sequences of ECMA-48: control sequences, operating system commands, two-character escapes."""


def plain(text: str) -> str:
    """The text without escape sequences of a terminal."""
    return _ANSI.sub("", text)


def causes(error: BaseException) -> list[BaseException]:
    """The exceptions that a group holds, without cancellations; of any other exception, itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inner = [cause for item in error.exceptions for cause in causes(item)]
    return [item for item in inner if not _cancelled(item)] or inner


def sentence(error: BaseException) -> str:
    """One line that names the exceptions behind `error`, each once."""
    lines = dict.fromkeys(_line(item) for item in causes(error))
    shown = list(lines)[:MAX_CAUSES]
    more = f"; and {len(lines) - MAX_CAUSES} more" if len(lines) > MAX_CAUSES else ""
    return "; ".join(shown) + more


def end(error: BaseException, intro: str = "", outro: str = "") -> None:
    """Log the traceback of an unexpected error, then the cause as the last line, which is the termination message."""
    if not all(map(says_all, causes(error))):
        log.error("unexpected error", exc_info=error)
    leave(f"{intro}{sentence(error)[: MAX_CHARACTERS // 2]}{outro}")


def leave(line: str, environ: Mapping[str, str] = os.environ) -> None:
    """Log one line, and leave it as the pod's termination message where there is a pod."""
    line = one_line(plain(line))[:MAX_CHARACTERS]
    sys.stdout.flush()
    log.error("%s", line)
    named = environ.get(ENV_TERMINATION_LOG)
    target = Path(named) if named else MOUNTED
    if named or target.exists():
        with contextlib.suppress(OSError):
            target.write_text(f"{line}\n", encoding="utf-8")


def _cancelled(error: BaseException) -> bool:
    return type(error).__name__ == "CancelledError"


def says_all(error: BaseException) -> bool:
    """Does the text of the exception say everything? Ours does."""
    return type(error).__module__.partition(".")[0].startswith("learnloop_")


def _line(error: BaseException) -> str:
    try:
        text = one_line(plain(str(error)))
    except Exception:  # of a user's class
        text = "its text cannot be read"
    if text and says_all(error):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
