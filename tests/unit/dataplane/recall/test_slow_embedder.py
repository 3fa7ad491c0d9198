"""An embedder that hangs costs a namespace three waits, and no other namespace its vectors."""

import asyncio
from unittest.mock import AsyncMock, Mock

from learnloop_dataplane.embedding.embedder import TOO_SLOW, QuestionVectors


async def test_an_embedder_that_hangs_is_not_waited_for_at_each_recall() -> None:
    async def hang(_: list[str]) -> None:
        await asyncio.sleep(5.0)

    embedders = {"here": Mock(embed=Mock(side_effect=hang)), "there": Mock(embed=AsyncMock(return_value=[0.0]))}
    vectors = QuestionVectors(AsyncMock(side_effect=embedders.get), seconds=0.01)
    for _ in range(TOO_SLOW + 5):
        assert (await vectors.of("here", "a question"))[2] == ["embedder"]
    assert embedders["here"].embed.call_count == TOO_SLOW
    assert (await vectors.of("there", "a question"))[2] == []
