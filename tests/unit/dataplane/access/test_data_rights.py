"""The rights to report a run, and rights beyond an agent's; the API server is played."""

from collections.abc import Mapping

import pytest

from learnloop_dataplane.access.kubernetes_api import Roles
from learnloop_dataplane.access.pod_owners import PodOwners
from learnloop_dataplane.access.tokens import Identity
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError, ApiServerRefused, Unavailable

OPERATOR = "system:serviceaccount:learnloop-system:learnloop-operator"
RANK = Identity("team", "system:serviceaccount:team:default", "t-master-0", "pod-1")
STRANGER = Identity("team", "system:serviceaccount:team:default", "web-0", "pod-9")


class Api:
    """Objects by path, and who is granted what."""

    def __init__(self, objects: Mapping | None = None, granted: set[tuple[str, str, str]] | None = None) -> None:
        self.objects, self.granted = dict(objects or {}), granted or set()
        self.requests, self.up = 0, True

    async def request(self, method: str, path: str, **_):
        self.requests += 1
        if not self.up:
            raise Unavailable("the API server")
        if path not in self.objects:
            raise ApiServerRefused(404, "not found", field=None)
        return self.objects[path]

    async def may(self, caller: Identity, verb: str, resource: str, name: str = "", *, group: str = "") -> bool:
        self.requests += 1
        assert group == "data.learnloop.dev"
        return (caller.subject, verb, resource) in self.granted


VERSIONS = {
    "TrainingJob": "learnloop.dev/v1alpha1",
    "ModelDeployment": "learnloop.dev/v1alpha1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Job": "batch/v1",
    "RayJob": "ray.io/v1",
    "RayCluster": "ray.io/v1",
}


def owned(uid: str, kind: str, name: str, owner: str, **more) -> dict:
    group = VERSIONS.get(kind, "kubeflow.org/v1")
    reference = {"apiVersion": group, "kind": kind, "name": name, "uid": owner, "controller": True}
    return {"metadata": {"uid": uid, "name": "t", "ownerReferences": [reference], **more}}


POD, GANG = "/api/v1/namespaces/team/pods/", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/t"
JOB = "/apis/learnloop.dev/v1alpha1/namespaces/team/trainingjobs/t"


def gang(**changes) -> Api:
    """TrainingJob t, its PyTorchJob at attempt 1, a rank of it, and a pod of somebody else."""
    objects = {
        JOB: {"metadata": {"uid": "job-1"}},
        GANG: owned("gang-1", "TrainingJob", "t", "job-1", annotations={"learnloop.dev/attempt": "1"}),
        POD + "t-master-0": owned("pod-1", "PyTorchJob", "t", "gang-1"),
        POD + "web-0": {"metadata": {"uid": "pod-9"}},
    }
    return Api(objects | changes)


async def refused(members: PodOwners, caller: Identity, job: str = "t", attempt: int | None = None) -> str:
    with pytest.raises(ApiError) as refusal:
        await members.require_rank(caller, job, attempt)
    assert refusal.value.status == 403
    return refusal.value.message


async def test_only_a_rank_of_the_runs_gang_reports_it() -> None:
    members = PodOwners(gang())
    await members.require_rank(RANK, "t", 1)
    await members.require_rank(RANK, "t")
    assert "pod web-0 belongs to no gang" in await refused(members, STRANGER)
    bare = Identity("team", "system:serviceaccount:team:default")
    assert "its token names no pod" in await refused(members, bare)
    gone = Identity("team", RANK.subject, "t-master-0", "pod-of-before")
    assert "its pod t-master-0 is gone" in await refused(members, gone)


async def test_a_rank_of_another_attempt_or_of_another_job_does_not() -> None:
    members = PodOwners(gang())
    assert "is at attempt 1, counted from 0; the report is of 0" in await refused(members, RANK, attempt=0)
    other = gang(**{GANG: owned("gang-1", "TrainingJob", "t", "job-of-before")})
    assert "is a rank of another job" in await refused(PodOwners(other), RANK)
    made_up = gang(**{POD + "web-0": owned("pod-9", "PyTorchJob", "t", "gang-0")})
    assert "belongs to no gang" in await refused(PodOwners(made_up), STRANGER)
    not_its = owned("pod-9", "PyTorchJob", "t", "gang-1")
    not_its["metadata"]["ownerReferences"][0]["controller"] = False
    assert await refused(PodOwners(gang(**{POD + "web-0": not_its})), STRANGER)


def below(*kinds: str) -> Api:
    """TrainingJob t, a gang of the first kind at attempt 1, what it makes of the other kinds, and last a pod."""
    objects = {JOB: {"metadata": {"uid": "job-1"}}}
    above, name, owner = "TrainingJob", "t", "job-1"
    for kind in kinds:
        notes = {"annotations": {"learnloop.dev/attempt": "1"}} if above == "TrainingJob" else {}
        own = "t" if kind == kinds[0] else f"{kind}-of-t"
        path = f"/apis/{VERSIONS[kind]}/namespaces/team/{kind.lower()}s/{own}"
        objects[path] = owned(kind, above, name, owner, **notes)
        above, name, owner = kind, own, kind
    objects[POD + "t-master-0"] = owned("pod-1", above, name, owner)
    return Api(objects)


CHAINS = [("Job",), ("JobSet", "Job"), ("TrainJob", "JobSet", "Job"), ("RayJob", "RayCluster")]


@pytest.mark.parametrize("kinds", CHAINS, ids="/".join)
async def test_a_rank_is_known_through_all_that_its_backend_makes_of_a_gang(kinds: tuple[str, ...]) -> None:
    members = PodOwners(below(*kinds))
    await members.require_rank(RANK, "t", 1)
    assert "is at attempt 1" in await refused(members, RANK, attempt=0)


async def test_a_gang_by_another_name_is_none_of_the_run() -> None:
    api = below("JobSet", "Job")
    path = next(path for path in api.objects if "jobsets" in path)
    api.objects[path]["metadata"]["name"] = "made-by-somebody"
    assert "is a rank of another job" in await refused(PodOwners(api), RANK)


async def test_a_chain_of_objects_ends_somewhere() -> None:
    api = below("Job")
    path = next(path for path in api.objects if "/jobs/" in path)
    api.objects[path] = owned("Job", "Job", "t", "Job")
    assert "belongs to no gang" in await refused(PodOwners(api), RANK)


async def test_a_run_that_no_training_job_waits_for_is_anybodys() -> None:
    api = gang()
    members = PodOwners(api)
    await members.require_rank(STRANGER, "by-hand")
    api.objects[f"{JOB[:-1]}by-hand"] = {"metadata": {"uid": "job-2"}}
    assert await refused(members, STRANGER, "by-hand"), "as soon as one waits, it is not"


async def test_a_rank_is_asked_about_once_and_a_stranger_each_time() -> None:
    api = gang()
    members = PodOwners(api)
    for _ in range(50):
        await members.require_rank(RANK, "t", 1)
    assert api.requests == 3
    api.up = False
    await members.require_rank(RANK, "t", 1)
    with pytest.raises(Unavailable):
        await members.require_rank(STRANGER, "t")


async def test_checkpoints_and_proofs_are_not_taken_from_a_rank_whose_pod_is_gone() -> None:
    api = gang()
    members = PodOwners(api)
    await members.require_rank(RANK, "t", 1)
    pod = api.objects.pop(POD + "t-master-0")
    await members.require_rank(RANK, "t", 1)
    with pytest.raises(ApiError, match="its pod t-master-0 is gone") as refusal:
        await members.require_rank(RANK, "t", 1, fresh=True)
    assert refusal.value.status == 403
    assert "is gone" in await refused(members, RANK), "and from then on not even a heartbeat is"
    api.objects[POD + "t-master-0"] = pod
    assert await members.require_rank(RANK, "t", 1, fresh=True) == 1


async def test_a_rank_of_a_former_run_of_the_name_hands_no_proof_in_for_the_next_one() -> None:
    api = gang()
    members = PodOwners(api)
    await members.require_rank(RANK, "t", 1)
    api.objects[JOB] = {"metadata": {"uid": "job-2"}}
    api.objects[GANG] = owned("gang-2", "TrainingJob", "t", "job-2", annotations={"learnloop.dev/attempt": "1"})
    with pytest.raises(ApiError, match="belongs to no gang"):
        await members.require_rank(RANK, "t", 1, fresh=True)


async def test_no_proof_is_taken_while_the_api_server_is_away() -> None:
    api = gang()
    members = PodOwners(api)
    await members.require_rank(RANK, "t", 1)
    api.up = False
    with pytest.raises(Unavailable):
        await members.require_rank(RANK, "t", 1, fresh=True)


SUITE = "/apis/batch/v1/namespaces/team/jobs/md-gate-1"
SUITE_POD = Identity("team", "system:serviceaccount:team:md-gates", "md-gate-1-x", "pod-1")


def suite(**changes) -> Api:
    """Job md-gate-1 of ModelDeployment md, its pod, and a pod of somebody else."""
    objects = {
        SUITE: owned("suite-1", "ModelDeployment", "md", "md-1"),
        POD + "md-gate-1-x": owned("pod-1", "Job", "md-gate-1", "suite-1"),
        POD + "web-0": {"metadata": {"uid": "pod-9"}},
    }
    return Api(objects | changes)


async def test_only_a_pod_of_the_suites_own_job_hands_in_its_report() -> None:
    async def why(api: Api, caller: Identity, deployment: str = "md") -> str:
        with pytest.raises(ApiError) as refusal:
            await PodOwners(api).require_suite(caller, deployment, "md-gate-1")
        assert refusal.value.status == 403
        return refusal.value.message

    await PodOwners(suite()).require_suite(SUITE_POD, "md", "md-gate-1")
    assert "pod web-0 is not of this Job" in await why(suite(), STRANGER)
    assert "its token names no pod" in await why(suite(), Identity("team", SUITE_POD.subject))
    assert "its pod md-gate-1-x is gone" in await why(suite(), Identity("team", "x", "md-gate-1-x", "pod-of-before"))
    assert "not of ModelDeployment other" in await why(suite(), SUITE_POD, "other")
    by_hand = suite(**{SUITE: {"metadata": {"uid": "suite-1"}}})
    assert "not of ModelDeployment md" in await why(by_hand, SUITE_POD), "a Job that a person made"
    again = suite(**{SUITE: owned("suite-2", "ModelDeployment", "md", "md-1")})
    assert "the Job is gone" in await why(again, SUITE_POD)


def config(**more) -> Config:
    return Config.model_validate(
        {"dsn": "postgresql://x", "artifacts": "file:///x", "operator_subject": OPERATOR, **more}
    )


async def test_an_agent_may_not_what_takes_a_role_and_the_sentence_names_the_right() -> None:
    api = Api(granted={("system:serviceaccount:team:boss", "delete", "people")})
    roles = Roles(config(admins="system:serviceaccount:team:root"), api)
    agent, boss = (Identity("team", f"system:serviceaccount:team:{name}") for name in ("agent", "boss"))
    with pytest.raises(ApiError, match=r"verb delete on people\.data\.learnloop\.dev") as refusal:
        await roles.require(agent, "delete", "people")
    assert refusal.value.status == 403
    for _ in range(9):
        await roles.require(boss, "delete", "people")
    assert api.requests == 2
    with pytest.raises(ApiError):
        await roles.require(boss, "delete", "runs")
    await roles.require(Identity("team", "system:serviceaccount:team:root"), "delete", "runs")
    await roles.require(Identity("team", OPERATOR), "update", "deployments")


async def test_without_an_api_server_the_listed_ones_are_all() -> None:
    with pytest.raises(ApiError):
        await Roles(config(), None).require(STRANGER, "delete", "people")
    await Roles(config(auth="none"), None).require(STRANGER, "delete", "people")
    await Roles(config(roles="off"), None).require(STRANGER, "delete", "people")
