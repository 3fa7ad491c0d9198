"""`python -m learnloop_dataplane.sandbox.limited_run`: calls of judged code, within limits. The Job's whole work.

The case stands in LEARNLOOP_CASE (see `RunCase`). The answer is one line of JSON: {"results": […], "note": "…"}, a
result for each call: {"returned": VALUE} or {"raised": CLASS, "text": …}. The code runs in a child without this
process's environment. When this process ends, so does its container, with all that the code has started.
"""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import zlib
from dataclasses import asdict, dataclass
from typing import Any

VARIABLE = "LEARNLOOP_CASE"
LONGEST = 98_304
"""Characters; the kernel takes 131,072 of one variable."""


class TooLong(ValueError):
    """Code and calls do not fit in a Job."""


@dataclass(frozen=True)
class RunCase:
    """Code, calls and limits.

    Attributes:
        calls: each a function's name, arguments and named arguments.
        seconds: of processor and of wall time, each.
        memory_megabytes: of the judged code.
    """

    code: str
    calls: list[list[Any]]
    seconds: int
    memory_megabytes: int

    def written(self) -> str:
        """As `read` reads it.

        Raises:
            TooLong: it does not fit.
        """
        text = base64.b64encode(zlib.compress(json.dumps(asdict(self)).encode())).decode()
        if len(text) > LONGEST:
            raise TooLong(f"code and calls take {len(text)} characters as one variable, {LONGEST} fit")
        return text

    @classmethod
    def read(cls, text: str) -> "RunCase":
        return cls(**json.loads(zlib.decompress(base64.b64decode(text))))


MOST_BYTES = 2**16
"""Of all results."""
NOBODY = 65534
_OWN_MEMORY = 2**27
"""Bytes of address space that an empty Python takes."""


def run(case: RunCase) -> dict[str, Any]:
    """Makes the calls; whatever the code does, this ends `case.seconds` after it began, and a moment."""
    user = NOBODY if os.geteuid() == 0 else 0
    limits = (case.seconds, case.memory_megabytes * 2**20 + _OWN_MEMORY, user)
    note = ""
    with tempfile.TemporaryFile() as answers:  # whose size the child's limits bound
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-m", "learnloop_dataplane.sandbox.judged_code", *map(str, limits)],
            stdin=subprocess.PIPE,
            stdout=answers,
            stderr=subprocess.DEVNULL,
            env={"PATH": "", "LC_ALL": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps([case.code, case.calls]).encode(), case.seconds)
        except subprocess.TimeoutExpired:
            note = f"stopped after {case.seconds} s"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answers.seek(0)
        written = answers.read(MOST_BYTES)
    results = _read(written, len(case.calls))
    if not note and len(results) < len(case.calls):
        note = "the code ended before its calls did"
    return {"results": [results.get(place) for place in range(len(case.calls))], "note": note}


def _read(written: bytes, calls: int) -> dict[int, Any]:
    """Results by the number of their call. The last one that was written counts."""
    results: dict[int, Any] = {}
    for line in written.splitlines():
        with contextlib.suppress(ValueError, RecursionError, TypeError):
            place, result = json.loads(line)
            if type(place) is int and 0 <= place < calls:
                results[place] = result
    return results


def main() -> None:
    print(json.dumps(run(RunCase.read(os.environ.pop(VARIABLE)))), flush=True)


if __name__ == "__main__":
    main()
