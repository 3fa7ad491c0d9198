"""The operator's memory for each of ten thousand objects: as little as it can, and nothing that is wrong."""

from learnloop_api import names
from learnloop_operator.kube.cached_reads import CACHED
from learnloop_operator.kube.kinds import DEPLOYMENT
from learnloop_operator.kube.object_cache import ObjectCache


def deployment(name: str, version: int, owner: str) -> dict:
    fields = {f"f:field{i}": {"f:value": {}} for i in range(80)}
    metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}
    more = {"labels": {names.LABEL_DEPLOYMENT: owner}, "managedFields": [{"manager": "m", "fieldsV1": fields}]}
    return {"metadata": {**metadata, **more}, "spec": {"replicas": version}}


def test_an_object_is_found_by_its_present_owner_alone() -> None:
    cache = ObjectCache(CACHED)
    for body in (deployment("a", 1, "old"), deployment("b", 2, "old"), deployment("a", 3, "new")):
        assert cache.put(DEPLOYMENT, body)

    def owned(owner: str) -> list[tuple[str, int]]:
        objects = cache.select(DEPLOYMENT, "ns", {names.LABEL_DEPLOYMENT: owner})
        return [(item["metadata"]["name"], item["spec"]["replicas"]) for item in objects]

    assert owned("old") == [("b", 2)]
    assert owned("new") == [("a", 3)]
    cache.remove(DEPLOYMENT, deployment("b", 4, "old"))
    assert owned("old") == []
