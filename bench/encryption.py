"""What sealing costs: a checkpoint put and read, and an episode's steps, beside the same work in the open.

    python -m bench.encryption

Last line: one JSON object. Ratios are of time, sealed to open, as median and range of the rounds.
"""

import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from learnloop_common.encryption.envelope import DataKey
from learnloop_dataplane.blobs.blob_store import BlobStore, FileBlobs
from learnloop_dataplane.encryption.data_keys import NAMESPACE, Owner
from learnloop_dataplane.encryption.sealed_blobs import SealedBlobs
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher, StepLog

ROUNDS = 9
CHECKPOINT_BYTES = 64 * 2**20
EPISODES, STEPS = 200, 200


class OneKey:
    """A stand-in for the table of data keys: what is measured is the sealing, not PostgreSQL's round trip."""

    def __init__(self) -> None:
        self.key = DataKey(uuid4(), os.urandom(32))

    async def of_namespace(self, namespace: str) -> DataKey:
        return self.key

    async def of(self, connection: Any, namespace: str, owners: Any) -> dict[Owner, DataKey]:
        return dict.fromkeys([NAMESPACE, *owners], self.key)

    async def by_id(self, connection: Any, namespace: str, key_ids: Any) -> dict[Any, DataKey]:
        return {self.key.key_id: self.key}


class NoDatabase:
    """Gives a transaction that nothing is asked of."""

    @asynccontextmanager
    async def tenant(self, namespace: str) -> AsyncIterator[None]:
        yield None


async def checkpoint(store: BlobStore, content: bytes) -> None:
    """Put and read back."""
    file = store.spool / f"upload-{uuid4().hex}"
    file.write_bytes(content)
    await store.put("team-a/checkpoints/job/1", file)
    chunks = await store.open("team-a/checkpoints/job/1")
    assert chunks is not None
    size = 0
    async for chunk in chunks:
        size += len(chunk)
    assert size == len(content)


def step() -> dict[str, Any]:
    """As CartPole's: four numbers of six digits."""
    seen = [round(random.gauss(0, 1), 6) for _ in range(4)]
    return {"observation": seen, "action": random.randrange(2), "log_prob": -0.693147, "reward": 1.0}


async def episodes(cipher: StepCipher, logs: list[StepLog]) -> None:
    """Seal and open a batch."""
    sealed = await cipher.seal(None, "team-a", logs, [Owner("walker")] * len(logs))
    assert len(await cipher.open(None, "team-a", sealed)) == len(logs)


async def compared(plain: Callable[[], Awaitable[None]], sealed: Callable[[], Awaitable[None]]) -> tuple[Any, Any]:
    """Seconds of each round, one after the other in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for work, kept in zip((plain, sealed), times, strict=True):
            begun = time.perf_counter()
            await work()
            kept.append(time.perf_counter() - begun)
    return times


async def main() -> None:
    keys, content = OneKey(), os.urandom(CHECKPOINT_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        inner = FileBlobs(Path(folder))
        sealed = SealedBlobs(inner, NoDatabase(), keys)  # type: ignore[arg-type]
        blobs = await compared(lambda: checkpoint(inner, content), lambda: checkpoint(sealed, content))
    logs = [StepLog(f"e-{number}", json.dumps([step() for _ in range(STEPS)]), "[0.5]") for number in range(EPISODES)]
    cipher = StepCipher(keys)  # type: ignore[arg-type]
    stored = await cipher.seal(None, "team-a", logs, [Owner("walker")] * len(logs))
    steps = await compared(lambda: episodes(PLAIN, logs), lambda: episodes(cipher, logs))
    ratios = [after / before for before, after in zip(*blobs, strict=True)]
    print(f"checkpoint of 64 MiB, put and read: {statistics.median(blobs[0]):.3f} s open")
    print(f"                                    {statistics.median(blobs[1]):.3f} s sealed")
    found = {
        "checkpoint_ratio": round(statistics.median(ratios), 2),
        "checkpoint_ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
        "checkpoint_sealed_mib_per_second": round(2 * CHECKPOINT_BYTES / 2**20 / statistics.median(blobs[1])),
        "episode_sealed_and_opened_microseconds": round(statistics.median(steps[1]) / EPISODES * 1e6),
        "episode_bytes": len(logs[0].steps or ""),
        "episode_sealed_bytes": len(stored[0].steps or ""),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
