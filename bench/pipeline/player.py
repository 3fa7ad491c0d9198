"""An agent that records episodes as fast as it may: `python -m bench.pipeline.player COUNT DIRECTORY NATS_URL`.

Each episode is kept in a spool on disk first, then its number is written to the ledger, DIRECTORY/ledger: the list of
what this process took charge of. Killed and started again it goes on after the ledger's last line.
"""

import asyncio
import sys
from pathlib import Path

from learnloop_sdk import Learnloop

AGENTS = 10
AHEAD = 512  # episodes that may wait in the spool: an agent that outruns the platform is slowed down, not forgotten


async def play(count: int, directory: Path, nats_url: str) -> None:
    """Records what is missing of `count` episodes and returns when all are acknowledged."""
    ledger_file = directory / "ledger"
    done = len(ledger_file.read_text().splitlines()) if ledger_file.exists() else 0
    loops = [
        Learnloop(f"agent-{n}", "http://nowhere", nats_url=nats_url, spool_directory=directory / f"spool-{n}")
        for n in range(AGENTS)
    ]
    for loop in loops:
        await loop.__aenter__()
    with ledger_file.open("a", buffering=1) as ledger:
        for number in range(done, count):
            loop = loops[number % AGENTS]
            async with loop.episode("t", external=True, metadata={"number": str(number)}) as episode:
                for step in range(3):
                    episode.record(step, 1.0, observation=[0.0, 1.0, float(step)], terminated=step == 2)
            ledger.write(f"{number}\n")
            if loop.recorder is not None and loop.recorder.pending > AHEAD:
                await loop.flush(60)
    for loop in loops:
        while await loop.flush(5):
            pass
        await loop.close()


if __name__ == "__main__":
    asyncio.run(play(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
