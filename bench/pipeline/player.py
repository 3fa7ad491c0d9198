"""Ten agents that record episodes as fast as they may: `python -m bench.pipeline.player COUNT DIRECTORY DATA_URL`.

Each episode is kept in a spool on disk first, then its number is written to the ledger, DIRECTORY/ledger: the list of
what this process took charge of. Killed and started again it plays what the ledger lacks. The agents play side by side,
so that one's disk is waited for while another plays.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import TextIO

from learnloop_sdk import Learnloop

AGENTS = 10
AHEAD = 512  # episodes that may wait in the spool: an agent that outruns the platform is slowed down, not forgotten


async def play_all(count: int, directory: Path, data_url: str) -> None:
    """Records what is missing of `count` episodes and returns when all are acknowledged."""
    ledger_file = directory / "ledger"
    # The last line of who was killed may be half a number: that one is played again.
    lines = ledger_file.read_text().splitlines(keepends=True) if ledger_file.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        os.truncate(ledger_file, sum(map(len, whole)))
    done = set(map(int, whole))
    with ledger_file.open("a", buffering=1) as ledger:
        async with asyncio.TaskGroup() as group:
            for agent in range(AGENTS):
                missing = [number for number in range(agent, count, AGENTS) if number not in done]
                spool = directory / f"spool-{agent}"
                loop = Learnloop(f"agent-{agent}", "http://nowhere", data_url=data_url, spool_directory=spool)
                group.create_task(play(loop, missing, ledger))


async def play(loop: Learnloop, numbers: list[int], ledger: TextIO) -> None:
    """One agent's episodes, one after the other."""
    await loop.__aenter__()
    for number in numbers:
        async with loop.episode("t", external=True, metadata={"number": str(number)}) as episode:
            for step in range(3):
                episode.record(step, 1.0, observation=[0.0, 1.0, float(step)], terminated=step == 2)
        ledger.write(f"{number}\n")
        if loop.delivery is not None and loop.delivery.pending > AHEAD:
            await loop.flush(60)
    while await loop.flush(5):
        pass
    await loop.close()


if __name__ == "__main__":
    asyncio.run(play_all(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
