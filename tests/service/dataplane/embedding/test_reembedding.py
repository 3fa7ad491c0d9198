"""A process killed while it embeds everything again: nothing lost, nothing twice, and recall goes on."""

import time
from pathlib import Path
from typing import Any

from testing.servers.data_plane_process import Product

from ..conftest import superuser
from .test_embedders import model

MEMORIES = 3000
COUNTS = "SELECT embedder, count(*) AS n FROM memory_vec WHERE agent_id = 'changer' GROUP BY embedder"


def recalled(product: Product) -> Any:
    body = {"agent_id": "changer", "context": "the cat number 1234", "k": 5}
    return product.post("/api/v1/memory/retrieve", body)["memories"]


async def test_embedding_again_goes_on_where_a_kill_cut_it_off(dsn: str, tmp_path: Path) -> None:
    memories = [
        {"agent_id": "changer", "memory_type": "semantic", "content": {"text": f"the cat number {number}"}}
        for number in range(MEMORIES)
    ]
    slow = {"SWEEP_SECONDS": "5", "RECALL_WAIT_MS": "10000"}  # 500 memories in a sweep
    with Product(dsn, tmp_path, tmp_path, **slow) as product:
        ids = product.post("/api/v1/memory/store/batch", {"memories": memories})["ids"]
        async with superuser(dsn) as watcher:
            while {row["n"] for row in await watcher.fetch(COUNTS)} != {MEMORIES}:
                recalled(product)
    onnx = f"onnx://{model(tmp_path / 'model')}"
    async with superuser(dsn) as watcher:

        async def counts() -> dict[str | None, int]:
            return {row["embedder"]: row["n"] for row in await watcher.fetch(COUNTS)}

        async def until(least: int) -> dict[str | None, int]:
            end = time.monotonic() + 120
            while True:
                assert recalled(product)[0]["id"] == ids[1234], "words find it, whoever made its vector"
                found = await counts()
                done = sum(n for name, n in found.items() if name and name.startswith("onnx"))
                if done >= least:
                    return found
                assert time.monotonic() < end, found

        with Product(dsn, tmp_path, tmp_path, EMBEDDER=onnx, **slow) as product:
            await until(500)
            product.kill()
            halfway = await counts()
            assert len(halfway) == 2
            product.start(SWEEP_SECONDS="0.1")
            found = await until(MEMORIES)
    assert found == {name: MEMORIES for name in found}
    assert len(found) == 1
