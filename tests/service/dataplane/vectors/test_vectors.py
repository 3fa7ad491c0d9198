"""Both vector stores keep one contract, each on its real server; and Weaviate may go and come back."""

import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from uuid import UUID

import pytest

from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.vectors.vector_store import Near
from testing.servers.weaviate_server import KEY, Weaviate, own_weaviate

from ..conftest import Api, eventually, running, settings
from ..embedding.test_embedders import model
from ..recall.test_recall import ask, invented, store

pytestmark = pytest.mark.timeout(1800)  # the first to need Weaviate on a machine builds it

NAMESPACE = "team-a"


@pytest.fixture(scope="module")
def weaviate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weaviate]:
    with own_weaviate(tmp_path_factory.mktemp("weaviate")) as server:
        yield server


@pytest.fixture
def dsn(migrated: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """Each test has agents of its own."""
    return migrated(f"vectors_{abs(hash(request.node.name))}_{os.getpid()}")


@pytest.fixture(params=["pgvector", "weaviate"])
async def api(request: pytest.FixtureRequest, dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    more = {"embedder": f"onnx://{model(tmp_path / 'model')}", "exact_up_to": 20}
    if request.param == "weaviate":
        server: Weaviate = request.getfixturevalue("weaviate")
        more |= {"weaviate_url": server.url, "weaviate_grpc": server.grpc, "weaviate_key": KEY}
    values = settings(dsn, tmp_path, index_check_seconds=0.2, sweep_seconds=0.2, **more)
    async with running(**values) as started:
        yield started


def mixed(count: int, seed: int) -> list[str]:
    """Different texts of six words each that the model knows: no two have vectors that are nearly the same."""
    choices = list(combinations_with_replacement(("cat", "dog", "cats", "the", "a", "!"), 6))
    return [" ".join(words) for words in random.Random(seed).sample(choices, count)]


async def held(api: Api, agent: str, texts: list[str]) -> list[UUID]:
    """Stores these and returns when all have a vector and the store has followed."""
    ids = await store(api, agent, texts)

    async def embedded() -> bool:
        async with api.db.tenant(NAMESPACE) as connection:
            left = "SELECT count(*) FROM memory_index WHERE agent_id = $1 AND embedder IS NULL"
            return bool(await connection.fetchval(left, agent) == 0)

    await eventually(embedded)
    await api.memory.vectors.follow(NAMESPACE)
    return [UUID(identity) for identity in ids]


async def near(api: Api, agent: str, text: str, k: int = 10) -> list[UUID]:
    embedder: Embedder = await api.memory.indexing.embedder(NAMESPACE)
    [vector] = await embedder.embed([text])
    return list(await api.memory.vectors.nearest(NAMESPACE, agent, Near(embedder.name, vector, k)))


async def test_the_nearest_come_first_and_no_other_agents(api: Api) -> None:
    texts = mixed(60, seed=1)
    ids = await held(api, "walker", texts)
    await held(api, "other", texts)
    for number in (7, 33):
        nearest = await near(api, "walker", texts[number])
        assert (nearest[0], len(nearest)) == (ids[number], 10)
        assert set(nearest) <= set(ids)


async def test_what_was_erased_is_near_no_longer(api: Api) -> None:
    texts = mixed(60, seed=2)
    ids = await held(api, "gone", texts)
    await api.call("POST", "/api/v1/memory/delete", json={"agent_id": "gone", "ids": [str(ids[5])]})
    await api.memory.vectors.erased(NAMESPACE, None)
    assert ids[5] not in await near(api, "gone", texts[5])
    await api.call("POST", "/api/v1/erasure", json={"agent_id": "gone"})
    assert await near(api, "gone", texts[6]) == []


async def test_a_large_agent_recalls_by_words_and_meaning(api: Api) -> None:
    texts = invented(60, seed=3)
    ids = await held(api, "large", texts)

    async def listed() -> bool:
        return bool((await ask(api, "large", "x"))["plan"] == "chosen")

    await eventually(listed)
    answer = await ask(api, "large", texts[11])
    assert (answer["memories"][0]["id"], answer["degraded"]) == (str(ids[11]), [])
