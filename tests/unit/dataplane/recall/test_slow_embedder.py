"""An embedder that hangs costs a namespace three waits, and no other namespace its vectors."""

import asyncio
from unittest.mock import AsyncMock, Mock

from learnloop_dataplane.recall.recall import TOO_SLOW, Recaller


async def test_an_embedder_that_hangs_is_not_waited_for_at_each_recall() -> None:
    async def hang(_: list[str]) -> None:
        await asyncio.sleep(5.0)

    embedders = {"here": Mock(embed=Mock(side_effect=hang)), "there": Mock(embed=AsyncMock(return_value=[0.0]))}
    of = AsyncMock(side_effect=embedders.get)
    recaller = Recaller(Mock(), Mock(), of, Mock(), Mock(), Mock(), embed_seconds=0.01)
    for _ in range(TOO_SLOW + 5):
        assert (await recaller._vector("here", "a question"))[2] == ["embedder"]
    assert embedders["here"].embed.call_count == TOO_SLOW
    assert (await recaller._vector("there", "a question"))[2] == []
