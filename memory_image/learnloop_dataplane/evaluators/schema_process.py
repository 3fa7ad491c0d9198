"""Checks one JSON value by one schema, within limits: run by `python -m`, with two arguments.

Started by `schemas_apart`. Standard input: the schema in one line, then the value. Standard output: a line that is
`yes` or `no`, as soon as it is known, and after a `no` a line that says why.
"""

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import BinaryIO

import orjson

from learnloop_dataplane.evaluators.linear_schemas import accepted, validator

NICE = 10


def check(asked: BinaryIO, told: BinaryIO) -> None:
    """Answers once."""
    accepts = validator(orjson.loads(asked.readline()))
    output = orjson.loads(asked.read())
    # Whether it is valid takes little memory. Every place where it is not may take much, and is not waited for.
    valid = accepts.is_valid(output)
    told.write(b"yes\n" if valid else b"no\n")
    told.flush()
    if not valid:
        told.write(str(accepted(accepts, output)).encode(errors="replace"))
        told.flush()


def main() -> None:
    """Arguments: seconds of processor, bytes of addresses."""
    seconds, addresses = (int(text) for text in sys.argv[1:3])
    with contextlib.suppress(OSError):
        os.nice(NICE)
        Path("/proc/self/oom_score_adj").write_text("1000")
    most = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: addresses, resource.RLIMIT_CORE: 0}
    for kind, value in most.items():
        resource.setrlimit(kind, (value, value))
    check(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
