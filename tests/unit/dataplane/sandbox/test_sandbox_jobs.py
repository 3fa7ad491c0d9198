"""A Job for each case: what it may, and what is made of what it says."""

import asyncio
import json

import pytest

from learnloop_api import names
from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import ApiServerRefused, Invalid, Unavailable
from learnloop_dataplane.evaluators.all_evaluators import EVALUATORS, score
from learnloop_dataplane.evaluators.evaluator import Case, Score, Tools
from learnloop_dataplane.sandbox.job import JobSandbox, manifest, read_answer
from learnloop_dataplane.sandbox.limited_run import VARIABLE, RunCase

TESTS = [{"call": "f", "args": [number], "returns": number} for number in range(4)]
CASE = RunCase("def f(x): return x", [["f", [number], {}] for number in range(4)], 5, 256)
SPEC = Evaluator.model_validate({"type": "unit-tests", "unitTests": {"seconds": 5}})


def test_a_job_has_no_token_no_root_nothing_to_write_to_and_an_end() -> None:
    job = manifest("run-1", "image:1", CASE)
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
    assert RunCase.read(variable["value"]) == CASE
    assert variable["name"] == VARIABLE


class Cluster:
    """Answers as an API server does; the pod has run by the second look."""

    def __init__(self, log: str = "", phase: str = "Succeeded", refuses: bool = False) -> None:
        self.log, self.phase, self.refuses = log, phase, refuses
        self.calls: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **options):
        self.calls.append((method, path))
        if method == "POST" and self.refuses:
            raise ApiServerRefused(403, "exceeded quota: learnloop-sandbox", field=None)
        if path.endswith("/log"):
            return self.log
        looks = sum(call[0] == "GET" for call in self.calls)
        phase = self.phase if looks > 1 else "Pending"
        return {"items": [{"metadata": {"name": "pod-1"}, "status": {"phase": phase}}]}


def scored(cluster: Cluster, **facts) -> Score:
    sandbox = JobSandbox(cluster, "apart", "image:1", look_seconds=0.001)
    case = Case(**{"output": CASE.code, "expected": TESTS, **facts})
    return asyncio.run(score(SPEC, case, Tools(sandbox=sandbox)))


def test_the_share_of_tests_passed_is_the_score_and_the_job_is_deleted() -> None:
    results = [{"returned": 0}, {"returned": 1}, {"returned": 2}, {"raised": "KeyError", "text": "3"}]
    cluster = Cluster(json.dumps({"results": results, "note": ""}) + "\n")
    assert scored(cluster) == Score(0.75, "3 of 4 tests passed; test 4: f raised KeyError: 3")
    assert cluster.calls[0][0] == "POST"
    assert cluster.calls[-1][0] == "DELETE"
    assert all("/namespaces/apart/" in path for _, path in cluster.calls)


@pytest.mark.parametrize(
    "log", ["", "Killed", '{"passed": 4, "tests": 4, "note": ""}', '{"results": 4, "note": ""}', "[" * 4000]
)
def test_a_job_that_says_nothing_sensible_earns_nothing(log: str) -> None:
    assert read_answer(log) is None
    assert scored(Cluster(log, "Failed")).value == 0.0


def test_a_full_sandbox_is_asked_again_later() -> None:
    with pytest.raises(Unavailable, match="exceeded quota"):
        scored(Cluster(refuses=True))


def test_tests_that_are_none_are_refused_when_the_policy_is_published_and_are_no_score_later() -> None:
    spec = Evaluator.model_validate({"type": "unit-tests", "unitTests": {"tests": "def test_f(): pass"}})
    with pytest.raises(Invalid, match=r"invalid tests: no JSON; write a list like"):
        EVALUATORS["unit-tests"].check(spec)
    result = scored(Cluster(), expected="def test_f(): pass")
    assert result.value is None
    assert "invalid tests" in result.note


def test_without_tests_or_sandbox_it_cannot_tell() -> None:
    assert "tests are missing" in scored(Cluster(), expected=None).note
    untold = asyncio.run(score(SPEC, Case(output="x", expected="y"), Tools()))
    assert untold.value is None
    assert "dataPlane.sandbox.enabled" in untold.note
