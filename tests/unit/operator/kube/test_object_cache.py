"""The cache that passes read, and the order of their writes."""

import contextlib
from types import SimpleNamespace

import pytest

from learnloop_api import names
from learnloop_operator.core.plan import BaseSnapshot, ObjectRef, Plan, parse_time
from learnloop_operator.kube.cached_reads import CACHED, CachedReads
from learnloop_operator.kube.errors import Conflict, Forbidden, NotFound, NotOurs
from learnloop_operator.kube.kinds import CONFIG_MAP, DEPLOYMENT, MODEL_DEPLOYMENT, SECRET
from learnloop_operator.kube.kubernetes_events import EventRecorder
from learnloop_operator.kube.object_cache import ObjectCache
from learnloop_operator.reconcile.apply_plan import Applier
from learnloop_operator.reconcile.training_job import TrainingJobController
from learnloop_operator.settings import Settings

NOW = parse_time("2026-03-01T00:00:00Z")


def deployment(version: int, name: str = "d", arm: str = "md", **more) -> dict:
    labels = {names.LABEL_DEPLOYMENT: arm, names.LABEL_MANAGED_BY: names.MANAGED_BY}
    metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version), "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, **more}


def version(cache: ObjectCache, name: str = "d") -> str | None:
    item = cache.get(DEPLOYMENT, "ns", name)
    return str(item["metadata"]["resourceVersion"]) if item else None


def test_an_entry_only_ever_moves_forward() -> None:
    cache = ObjectCache(CACHED)
    assert cache.put(DEPLOYMENT, deployment(5))
    assert not cache.put(DEPLOYMENT, deployment(5)), "the echo of a write changes nothing"
    assert not cache.put(DEPLOYMENT, deployment(4)), "a late event is older than our own write"
    assert version(cache) == "5"


def test_a_late_answer_does_not_bring_a_deleted_object_back() -> None:
    cache = ObjectCache(CACHED)
    cache.put(DEPLOYMENT, deployment(5))
    cache.remove(DEPLOYMENT, deployment(7))
    assert not cache.put(DEPLOYMENT, deployment(6))
    assert version(cache) is None
    assert cache.put(DEPLOYMENT, deployment(8)), "another one of the same name is new"


def test_what_a_listing_misses_is_gone_unless_it_is_newer_than_the_listing() -> None:
    cache = ObjectCache(CACHED)
    for number, name in ((1, "kept"), (2, "ghost"), (12, "born-later")):
        cache.put(DEPLOYMENT, deployment(number, name))
    assert not cache.complete(DEPLOYMENT)
    cache.listed(DEPLOYMENT, {("ns", "kept")}, "10")
    assert cache.complete(DEPLOYMENT)
    assert [version(cache, name) for name in ("kept", "ghost", "born-later")] == ["1", None, "12"]


def test_objects_are_found_by_their_labels_and_a_copy_is_nobodys_to_change() -> None:
    cache = ObjectCache(CACHED)
    cache.put(DEPLOYMENT, deployment(1, "a", "md"))
    cache.put(DEPLOYMENT, deployment(2, "b", "other"))
    objects = cache.select(DEPLOYMENT, "ns", {names.LABEL_DEPLOYMENT: "md"})
    assert [item["metadata"]["name"] for item in objects] == ["a"]
    objects[0]["metadata"]["name"] = "changed"
    cache.put(DEPLOYMENT, deployment(3, "a", "moved"))
    assert cache.select(DEPLOYMENT, "ns", {names.LABEL_DEPLOYMENT: "md"}) == []
    assert len(cache.select(DEPLOYMENT, "ns", {})) == 2


def test_secrets_are_never_kept() -> None:
    cache = ObjectCache(CACHED)
    secret = {"metadata": {"namespace": "ns", "name": "s", "resourceVersion": "1"}, "data": {"password": "eA=="}}
    cache.put(SECRET, secret)
    assert cache.get(SECRET, "ns", "s") is None


class Kube:
    """A live API server of which every question and write is remembered."""

    def __init__(self, *objects: dict) -> None:
        self.objects = {(item["kind"], item["metadata"]["name"]): item for item in objects}
        self.requests: list[str] = []
        self.wrote: list[str] = []
        self.statuses = []

    async def get(self, kind, namespace: str, name: str):
        item = await self.find(kind, namespace, name)
        if item is None:
            raise NotFound("not there", status=404, reason="NotFound")
        return item

    async def find(self, kind, namespace: str, name: str):
        self.requests.append(name)
        return self.objects.get((kind.kind, name))

    relearn = find

    async def list(self, kind, *_, **__) -> list:
        self.requests.append(kind.plural)
        return list(self.objects.values())

    def same(self, manifest, live, *_) -> bool:
        return bool(manifest.get("data") == live.get("data"))

    async def apply(self, manifest, manager: str, *, live) -> None:
        if live is None or not self.same(manifest, live):
            self.wrote.append(manifest["metadata"]["name"])

    async def create(self, manifest) -> None:
        name = manifest["metadata"]["name"]
        if (manifest["kind"], name) in self.objects:
            raise Conflict("409", status=409)
        self.wrote.append(name)

    async def apply_status(self, *_, live):
        self.statuses.append(live["metadata"]["resourceVersion"])
        return live

    async def delete(self, ref: ObjectRef, **_) -> None:
        self.wrote.append(f"-{ref.name}")


async def test_a_suspended_training_job_asks_only_for_what_may_have_to_go() -> None:
    kube = Kube(training_job(suspend=True))
    requests: list[str] = []

    class Plane:
        async def run(self, _: str, job: str) -> None:
            requests.append(job)

    services = SimpleNamespace(kube=kube, data_plane=Plane(), settings=Settings(), clock=lambda: NOW, cache=None)
    controller = TrainingJobController(services)
    kube.objects["TrainingJob", "t"]["status"] = {"phase": "Suspended"}
    assert await controller.gather("ns", "t") is not None
    assert (kube.requests, requests) == (["t"] * 4, []), "itself and a gang of any backend; no pods, no run"
    kube.objects["TrainingJob", "t"]["status"] = {"attempts": 1}
    await controller.gather("ns", "t")
    assert requests == ["t"], "one that ran says from which step it goes on"


def training_job(**spec) -> dict:
    metadata = {"namespace": "ns", "name": "t", "uid": "t", "resourceVersion": "1", "generation": 1}
    data = {"environment": "CartPole-v1"}
    body = {"algorithm": "ppo", "totalSteps": 1000, "data": data, "pod": {}, **spec}
    return {"apiVersion": "learnloop.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": body}


async def test_a_kind_is_read_live_until_it_was_listed_and_costs_no_question_from_then_on() -> None:
    kube, cache = Kube(deployment(9)), ObjectCache(CACHED)
    reads = CachedReads(kube, cache)
    cache.put(DEPLOYMENT, deployment(5))
    assert await reads.find(DEPLOYMENT, "ns", "d") == deployment(9), "not listed yet"
    cache.put(DEPLOYMENT, deployment(9))
    cache.listed(DEPLOYMENT, {("ns", "d")}, "9")
    kube.requests.clear()
    assert await reads.find(DEPLOYMENT, "ns", "d") == deployment(9)
    assert await reads.find(DEPLOYMENT, "ns", "another") is None
    assert await reads.list(DEPLOYMENT, "ns", labels=f"{names.LABEL_DEPLOYMENT}=md") == [deployment(9)]
    assert kube.requests == []


def table(text: str) -> dict:
    metadata = {"namespace": "ns", "name": "md-routing", "resourceVersion": "3"}
    return {"apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": metadata, "data": {"routing": text}}


def owned(text: str, uid: str) -> dict:
    child = table(text)
    child["metadata"]["ownerReferences"] = [{"kind": "ModelDeployment", "name": "md", "uid": uid, "controller": True}]
    return child


def applier(kube: Kube, reads: CachedReads | None = None) -> Applier:
    return Applier(kube, None, EventRecorder(kube, "op"), reads)


def snapshot(*children: dict) -> BaseSnapshot:
    live = {
        "kind": "ModelDeployment",
        "metadata": {"namespace": "ns", "name": "md", "uid": "u", "resourceVersion": "3"},
    }
    return BaseSnapshot(now=NOW, object=live, children=children)


async def test_children_are_written_before_the_status_of_the_version_that_was_seen() -> None:
    kube = Kube(table("a"))
    await applier(kube).apply(MODEL_DEPLOYMENT, snapshot(table("a")), Plan(status={}, apply=(table("b"),)))
    assert (kube.wrote, kube.statuses) == (["md-routing"], ["3"])


async def test_a_child_that_only_the_cache_lacks_is_found_and_not_taken_over() -> None:
    kube = Kube(table("somebody's"))
    reads = CachedReads(kube, ObjectCache(CACHED))
    reads.cache.listed(CONFIG_MAP, set(), "9")
    with pytest.raises(NotOurs):
        await applier(kube, reads).apply(MODEL_DEPLOYMENT, snapshot(), Plan(status={}, apply=(owned("a", "u"),)))
    assert kube.wrote == []


@pytest.mark.parametrize("gone", [True, False])
async def test_a_child_of_the_deleted_owner_is_made_again_once_it_is_gone(gone: bool) -> None:
    earlier, ours = owned("a", "deleted"), owned("b", "u")
    kube = Kube() if gone else Kube(earlier)
    reads = CachedReads(kube, ObjectCache(CACHED))
    reads.cache.put(CONFIG_MAP, earlier)
    reads.cache.listed(CONFIG_MAP, {("ns", "md-routing")}, "9")
    with contextlib.nullcontext() if gone else pytest.raises(Conflict, match="waiting for its end"):
        await applier(kube, reads).apply(MODEL_DEPLOYMENT, snapshot(), Plan(status={}, apply=(ours,)))
    assert kube.wrote == (["md-routing"] if gone else [])


async def test_a_secret_is_made_once_and_never_read() -> None:
    metadata = {"namespace": "ns", "name": "md-episodes", "resourceVersion": "1"}
    plan = Plan(status={}, apply=({"apiVersion": "v1", "kind": SECRET.kind, "metadata": metadata, "stringData": {}},))
    there, missing = Kube({**plan.apply[0], "data": {"key": "b2xk"}}), Kube()
    await applier(there).apply(MODEL_DEPLOYMENT, snapshot(), plan)
    assert (there.requests.count("md-episodes"), there.wrote) == (0, []), "the key in use stays"
    await applier(missing).apply(MODEL_DEPLOYMENT, snapshot(), plan)
    assert (missing.requests.count("md-episodes"), missing.wrote) == (0, ["md-episodes"])


async def test_a_router_that_cannot_be_told_holds_no_write_of_a_rollout_up() -> None:
    registration = table("x") | {"metadata": {"namespace": "ns", "name": "tensorzero", "resourceVersion": "1"}}

    class Refusing(Kube):
        async def apply(self, manifest: dict, *given, **named) -> dict:
            if manifest["metadata"]["name"] == "tensorzero":
                raise Forbidden("configmaps: no right", status=403)
            return await super().apply(manifest, *given, **named)

    kube, plan = Refusing(), Plan(status={}, apply=(table("a"),), outside=(registration, table("b")))
    telling = applier(kube)
    errors: list[str] = []
    telling.recorder.note = lambda _, notice: errors.append(f"{notice.reason}: {notice.message}")
    await telling.apply(MODEL_DEPLOYMENT, snapshot(), plan)
    assert kube.wrote == ["md-routing", "md-routing"], "the table, and the next router's configuration"
    assert kube.statuses == ["3"], "the status is written"
    assert errors == ["RegistrationFailed: ConfigMap tensorzero: configmaps: no right"]
