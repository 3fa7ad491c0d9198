"""The object that runs a TrainingJob's gang: its own, on whichever backend the cluster has."""

import pytest

from learnloop_operator.kube.errors import KindMissing, NotFound, Unavailable
from learnloop_operator.kube.kinds import WORKLOAD, ResourceKind
from learnloop_operator.reconcile.training_job import find_gang, queue_missing, queue_says
from testing.training.training_builders import resource

ALL = {"PyTorchJob", "TrainJob", "Job"}


class Cluster:
    """Kinds that the API server knows, and objects by kind."""

    def __init__(self, *kinds: str, **owners: str) -> None:
        self.kinds, self.owners = set(kinds), owners
        self.requests: list[str] = []
        self.workloads = {}

    async def get(self, kind: ResourceKind, namespace: str, name: str):
        self.requests.append(kind.kind)
        if kind.kind not in self.kinds:
            raise KindMissing("404", status=404)
        if kind.kind not in self.owners:
            raise NotFound("404", status=404)
        reference = {"kind": "TrainingJob", "name": name, "uid": self.owners[kind.kind], "controller": True}
        return {"metadata": {"name": name, "namespace": namespace, "uid": "g", "ownerReferences": [reference]}}

    async def list(self, kind: ResourceKind, *_, labels: str, **__):
        if kind not in self.workloads:
            raise KindMissing("404", status=404)
        return self.workloads[kind] if labels.endswith("=g") else []


async def backend(cluster: Cluster, setting: str = "auto", recorded: str | None = None) -> tuple[str | None, set[str]]:
    gang = await find_gang(cluster, resource(), setting, recorded)
    return str(gang.object["kind"]) if gang.object else None, set(gang.installed)


async def test_where_there_is_no_gang_every_kind_is_asked_about_each_time() -> None:
    cluster = Cluster("Job")
    assert await backend(cluster) == (None, {"job"})
    cluster.kinds.add("TrainJob")
    assert await backend(cluster) == (None, {"job", "trainjob"}), "installed later, and no restart needed"


async def test_the_recorded_backend_is_asked_first_and_alone_while_it_has_the_gang() -> None:
    cluster = Cluster(*ALL, TrainJob="u-1")
    assert (await backend(cluster, recorded="trainjob"))[0] == "TrainJob"
    assert cluster.requests == ["TrainJob"]
    assert (await backend(Cluster(*ALL, Job="u-1"), recorded="trainjob"))[0] == "Job", "begun, and never recorded"


async def test_only_what_the_spec_leaves_open_is_asked_about() -> None:
    cluster = Cluster(*ALL, Job="u-1")
    assert await backend(cluster, setting="trainjob") == (None, {"trainjob"})
    assert cluster.requests == ["TrainJob"]


async def test_an_object_of_the_same_name_that_is_somebody_elses_is_no_gang_of_ours() -> None:
    cluster = Cluster(*ALL, Job="u-of-an-earlier-one")
    assert (await backend(cluster))[0] is None


async def test_a_queue_is_missing_only_where_kueue_is_not_installed() -> None:
    cluster = Cluster()
    message = await queue_missing(cluster, "ns", "team-a")
    assert "LocalQueue team-a" in message
    cluster.workloads = {WORKLOAD: []}
    assert await queue_missing(cluster, "ns", "team-a") == ""


async def test_the_workload_of_this_gang_speaks_and_silence_stops_nothing() -> None:
    waits = {"type": "QuotaReserved", "status": "False", "message": "2 more needed"}
    cluster = Cluster()
    cluster.workloads = {WORKLOAD: [{"metadata": {}, "status": {"conditions": [waits]}}]}
    assert await queue_says(cluster, "ns", "g") == "2 more needed"
    assert await queue_says(cluster, "ns", "other") == ""

    class Silent(Cluster):
        async def list(self, *_, **__):
            raise Unavailable("503", status=503)

    assert await queue_says(Silent(), "ns", "g") == ""
    with pytest.raises(Unavailable):
        await queue_missing(Silent(), "ns", "team-a")
