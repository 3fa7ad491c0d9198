"""A process of our own beside this one, for work that must not hold it up or look into it."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


async def started_apart(program: str, *arguments: str, folder: str = "/", **environment: str) -> Process:
    """The process, with pipes for its input and output. It gets nothing of this process's environment, which has keys
    and addresses: only where Python's modules are, and what is given by name.

    Raises:
        OSError: it cannot be started.
    """
    modules = os.pathsep.join(filter(None, sys.path))
    return await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={"PATH": "", "PYTHONPATH": modules, **environment},
        cwd=folder,
    )


@asynccontextmanager
async def process_apart(program: str, *arguments: str, **environment: str) -> AsyncIterator[Process]:
    """The same for as long as the block lasts; then it is killed, unless it has ended. Raises OSError."""
    process = await started_apart(program, *arguments, **environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
