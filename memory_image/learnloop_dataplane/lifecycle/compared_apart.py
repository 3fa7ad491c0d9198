"""Where a comparison is made: of few memories in a thread, of many in a process of its own.

What 20,000 memories are compared by are a million small objects. Python gives a MiB back when nothing in it is used any
more, and something that was made meanwhile always is: three passes left 58 MB in a process of 84. Besides, a thread
that compares holds up recalls, because Python lets one thread work at a time.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence

from learnloop_dataplane.concurrency.offload import process_apart
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.lifecycle.comparison import Compared, compare
from learnloop_dataplane.lifecycle.rests import Rests

log = logging.getLogger(__name__)
MANY = 500  # memories: below it the start of a process costs more than the comparison
PROGRAM = "learnloop_dataplane.lifecycle.comparing_process"


async def compared(held: Sequence[bytes], shown: Sequence[bytes], memories: int, *, rests: bool) -> Compared:
    """What may go; see `compare`.

    Args:
        memories: how many are held.
        rests: whether it keeps out of everybody's way.

    Raises:
        Unavailable: the process ended before it had an answer, for want of memory for instance.
    """
    if memories > MANY:
        try:
            return await _apart(held, shown, rests=rests)
        except OSError as error:
            log.warning("no process can be started to compare memories (%s); a thread does it", error)
    return await asyncio.to_thread(compare, held, shown, Rests() if rests else None)


async def _apart(held: Sequence[bytes], shown: Sequence[bytes], *, rests: bool) -> Compared:
    arguments = "-m", PROGRAM, str(len(held)), "rests" if rests else "works"
    async with process_apart(sys.executable, *arguments) as process:
        said, _ = await process.communicate(b"\n".join([*held, *shown]))
    if process.returncode:
        raise Unavailable(f"the process that compares memories (it ended with {process.returncode})", retry_after=10)
    return Compared.decode(said)
