"""What the operator holds for each of ten thousand objects: as little as it can, and nothing that is wrong."""

from datetime import timedelta
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api import names
from learnloop_operator.adapters.kube.kinds import DEPLOYMENT
from learnloop_operator.adapters.kube.live_or_cached_reads import CACHED
from learnloop_operator.adapters.kube.object_cache import ObjectCache
from learnloop_operator.controllers.unwritten_statuses import UnwrittenStatuses
from learnloop_operator.core.snapshot import parse_time
from learnloop_operator.tuning.kopf_memories import NoMemories
from learnloop_operator.tuning.text_packing import Packer

NOW = parse_time("2026-03-01T00:00:00Z")


def deployment(name: str, version: int, owner: str) -> dict[str, Any]:
    fields = {f"f:field{i}": {"f:value": {}} for i in range(80)}
    metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}
    more = {"labels": {names.LABEL_DEPLOYMENT: owner}, "managedFields": [{"manager": "m", "fieldsV1": fields}]}
    return {"metadata": {**metadata, **more}, "spec": {"replicas": version}}


@given(st.lists(st.binary(max_size=40_000), max_size=5))
def test_what_is_packed_comes_back(texts: list[bytes]) -> None:
    packer = Packer()
    packed = [packer.pack(text) for text in texts]
    assert [packer.unpack(item) for item in packed] == texts


def test_of_an_object_like_the_first_only_the_difference_is_kept() -> None:
    packer = Packer()
    texts = [orjson.dumps(deployment(f"d-{i}", i, f"owner-{i}")) for i in range(2)]
    packer.pack(texts[0])
    assert len(packer.pack(texts[1])) < len(texts[1]) / 10


def test_an_object_is_found_by_its_present_owner_alone() -> None:
    cache = ObjectCache(CACHED)
    for body in (deployment("a", 1, "old"), deployment("b", 2, "old"), deployment("a", 3, "new")):
        assert cache.put(DEPLOYMENT, body)

    def owned(owner: str) -> list[tuple[str, int]]:
        found = cache.select(DEPLOYMENT, "ns", {names.LABEL_DEPLOYMENT: owner})
        return [(item["metadata"]["name"], item["spec"]["replicas"]) for item in found]

    assert owned("old") == [("b", 2)]
    assert owned("new") == [("a", 3)]
    cache.remove(DEPLOYMENT, deployment("b", 4, "old"))
    assert owned("old") == []


async def test_kopf_remembers_nothing_of_an_object() -> None:
    memories, body = NoMemories(), {"metadata": {"uid": "one"}}
    first = await memories.recall(body, noticed_by_listing=True)
    assert first.noticed_by_listing
    assert await memories.recall(body) is not first
    assert not list(memories.iter_all_memories())
    await memories.forget(body)


def test_a_status_that_says_what_is_written_is_no_draft() -> None:
    drafts, live = UnwrittenStatuses(), {"metadata": {"uid": "u"}, "status": {"phase": "Serving"}}
    drafts.keep(live, {"phase": "Serving", "verdict": "new"}, NOW)
    assert drafts.of(live) is not None
    drafts.keep(live, {"phase": "Serving", "verdict": None}, NOW + timedelta(seconds=1))
    assert drafts.of(live) is None
