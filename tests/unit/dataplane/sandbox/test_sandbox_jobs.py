"""A Job for each case: what it may, and what is made of what it says."""

import asyncio
from typing import Any

import pytest

from learnloop_api import names
from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import ApiServerRefused, Unavailable
from learnloop_dataplane.evaluators.evaluator import Case, Score, Tools
from learnloop_dataplane.evaluators.registry import score
from learnloop_dataplane.kubernetes.sandbox_jobs import JobSandbox, read
from learnloop_dataplane.sandbox.cases import VARIABLE, RunCase
from learnloop_dataplane.sandbox.job_manifest import manifest

ASKED = RunCase("def f(): pass", "def test_f(): pass", 5, 256)
SPEC = Evaluator.model_validate({"type": "unit-tests", "unitTests": {"seconds": 5}})


def test_a_job_has_no_token_no_root_nothing_to_write_to_and_an_end() -> None:
    job = manifest("run-1", "image:1", ASKED)
    assert job["spec"]["template"]["metadata"]["annotations"] == names.NO_SIDECAR
    pod = job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["restartPolicy"] == "Never"
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["activeDeadlineSeconds"] == 65
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory", "ephemeral-storage"} == set(container["resources"]["limits"])
    (volume,) = pod["volumes"]
    assert set(volume["emptyDir"]) == {"medium", "sizeLimit"}, "no Secret, no ConfigMap, no host path"
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(pod)
    (variable,) = container["env"]
    assert RunCase.read(variable["value"]) == ASKED
    assert variable["name"] == VARIABLE


class Cluster:
    """Answers as an API server does; the pod has run by the second look."""

    def __init__(self, log: str = "", phase: str = "Succeeded", refuses: bool = False) -> None:
        self.log, self.phase, self.refuses = log, phase, refuses
        self.calls: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **options: Any) -> Any:
        self.calls.append((method, path))
        if method == "POST" and self.refuses:
            raise ApiServerRefused(403, "exceeded quota: learnloop-sandbox", field=None)
        if path.endswith("/log"):
            return self.log
        looks = sum(call[0] == "GET" for call in self.calls)
        phase = self.phase if looks > 1 else "Pending"
        return {"items": [{"metadata": {"name": "pod-1"}, "status": {"phase": phase}}]}


def scored(cluster: Cluster, **facts: Any) -> Score:
    sandbox = JobSandbox(cluster, "apart", "image:1", look_seconds=0.001)  # type: ignore[arg-type]
    case = Case(**{"output": ASKED.code, "expected": ASKED.tests, **facts})
    return asyncio.run(score(SPEC, case, Tools(sandbox=sandbox)))


def test_the_share_of_tests_passed_is_the_score_and_the_job_is_deleted() -> None:
    cluster = Cluster('{"passed": 3, "tests": 4, "note": "3 of 4 tests passed"}\n')
    assert scored(cluster) == Score(0.75, "3 of 4 tests passed")
    assert cluster.calls[0][0] == "POST"
    assert cluster.calls[-1][0] == "DELETE"
    assert all("/namespaces/apart/" in path for _, path in cluster.calls)


@pytest.mark.parametrize(
    "log",
    ["", "Killed", '{"passed": 9, "tests": 4, "note": ""}', '{"passed": true, "tests": 1, "note": ""}', "[" * 4000],
)
def test_a_job_that_says_nothing_sensible_earns_nothing(log: str) -> None:
    assert read(log) is None
    assert scored(Cluster(log, "Failed")).value == 0.0


def test_a_full_sandbox_is_asked_again_later() -> None:
    with pytest.raises(Unavailable, match="exceeded quota"):
        scored(Cluster(refuses=True))


def test_without_tests_or_sandbox_it_cannot_tell() -> None:
    assert "there are no tests" in scored(Cluster(), expected=None).note
    untold = asyncio.run(score(SPEC, Case(output="x", expected="y"), Tools()))
    assert untold.value is None
    assert "dataPlane.sandbox.enabled" in untold.note
