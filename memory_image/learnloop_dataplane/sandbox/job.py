"""The Job that runs judged code: the cases that it calls, its manifest, and what it answers."""

import asyncio
import contextlib
import json
import math
import random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from learnloop_api import names
from learnloop_dataplane.concurrency.limits import FairPlaces
from learnloop_dataplane.errors import ApiServerRefused, Unavailable
from learnloop_dataplane.postgres.database import uuid7
from learnloop_dataplane.sandbox.limited_run import VARIABLE, RunCase

if TYPE_CHECKING:
    from learnloop_dataplane.access.kubernetes_api import KubeApi

MOST_CASES = 200
CLOSE = 1e-9  # numbers may differ by so much of the larger one
MOST_SHOWN = 100  # characters of a result in a note


class CodeTest(BaseModel):
    """One call of a function of the code, and what comes of it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    call: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    args: list[JsonValue] = Field(default_factory=list, max_length=32)
    kwargs: dict[str, JsonValue] = Field(default_factory=dict, max_length=32)
    returns: JsonValue = None
    raises: str | None = Field(default=None, min_length=1, max_length=64)

    @model_validator(mode="after")
    def _one_end(self) -> "CodeTest":
        if ("returns" in self.model_fields_set) == (self.raises is not None):
            raise ValueError("set either returns or raises")
        return self

    def passed(self, result: Any) -> bool:
        """Whether a result, as the code's process wrote it, is what is expected."""
        if not isinstance(result, dict):
            return False
        if self.raises is not None:
            return bool(result.get("raised") == self.raises)
        try:
            return "returned" in result and same(self.returns, result["returned"])
        except (RecursionError, OverflowError):
            return False


_TESTS = TypeAdapter(list[CodeTest])


def read_tests(given: Any) -> list[CodeTest]:
    """Tests as a RewardPolicy or an episode has them: a list, or its JSON.

    Raises:
        ValueError: they are none; the message says why and what they look like.
    """
    try:
        tests = _TESTS.validate_python(orjson.loads(given) if isinstance(given, str) else given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"invalid tests: {place}: {first['msg']}; {_FORM}") from None
    except ValueError:
        raise ValueError(f"invalid tests: no JSON; {_FORM}") from None
    if not 1 <= len(tests) <= MOST_CASES:
        raise ValueError(f"invalid tests: {len(tests)} cases; give 1 to {MOST_CASES}")
    return tests


def judge(tests: list[CodeTest], results: Any) -> tuple[int, str]:
    """How many tests passed, and one sentence: of the first that failed, what the code made of it."""
    answers = results if isinstance(results, list) else []
    answers = [*answers[: len(tests)], *([None] * (len(tests) - len(answers)))]
    verdicts = [test.passed(answer) for test, answer in zip(tests, answers, strict=True)]
    note = f"{sum(verdicts)} of {len(tests)} tests passed"
    if all(verdicts):
        return len(tests), note
    place = verdicts.index(False)
    answer, call = answers[place], tests[place].call
    if isinstance(answer, dict) and "returned" in answer:
        came = f"returned {answer['returned']!r}"[:MOST_SHOWN]
    elif isinstance(answer, dict) and isinstance(answer.get("raised"), str):
        came = f"raised {answer['raised']}: {answer.get('text', '')}"[:MOST_SHOWN]
    else:
        came = "has no result"
    return sum(verdicts), f"{note}; test {place + 1}: {call} {came}"


def same(expected: Any, value: Any) -> bool:
    """Equality of JSON values; numbers may differ by rounding."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, int | float) and isinstance(value, int | float):
        return expected == value or math.isclose(expected, value, rel_tol=CLOSE)
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(same, expected, value))
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() == value.keys() and all(same(item, value[key]) for key, item in expected.items())
    return bool(expected == value)


_FORM = """write a list like [{"call": "add", "args": [1, 2], "returns": 3}, {"call": "add", "raises": "TypeError"}]"""


START_SECONDS = 60
"""Until a pod's container runs."""
RETENTION_SECONDS = 120
"""Time to live of a finished Job that was not deleted."""
LABEL = "learnloop.dev/sandbox"
USERS = (200_000, 265_535)
"""One for each Job at random: the kernel counts the processes of a user over all pods of a node."""


def manifest(name: str, image: str, case: RunCase) -> dict[str, Any]:
    """No token, no root, no capability, nothing to write to but a little memory, and an end.

    Raises:
        TooLong: the case does not fit.
    """
    user = random.SystemRandom().randint(*USERS)
    limits = {"cpu": "1", "memory": f"{case.memory_megabytes + 128}Mi", "ephemeral-storage": "16Mi"}
    container = {
        "name": "run",
        "image": image,
        "command": ["python", "-I", "-B", "-m", "learnloop_dataplane.sandbox.limited_run"],
        "env": [{"name": VARIABLE, "value": case.written()}],
        "resources": {"limits": limits, "requests": {**limits, "cpu": "100m"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": case.seconds + START_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {LABEL: "case"}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": case.seconds + START_SECONDS,
            "ttlSecondsAfterFinished": RETENTION_SECONDS,
            "template": {
                "metadata": {
                    "labels": {**names.NO_SIDECAR_LABELS, LABEL: "case"},
                    "annotations": dict(names.NO_SIDECAR),
                },
                "spec": pod,
            },
        },
    }


AT_ONCE = 4
"""Jobs of this replica; the namespace's ResourceQuota bounds those of all."""
LOOK_SECONDS = 1.0
LONGEST_ANSWER = 2**18  # bytes; results are 2**16, and twice as much in JSON's escapes
ENDED = ("Succeeded", "Failed")
Answers = tuple[list[Any], str]


class JobSandbox:
    """A namespace in which Jobs may be made, and an image to make them of.

    Args:
        look_seconds: between two looks at a Job that runs.
    """

    def __init__(self, kube: "KubeApi", namespace: str, image: str, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._kube = kube
        self._namespace = namespace
        self._image = image
        self._look = look_seconds
        self._places = FairPlaces(AT_ONCE)

    async def run(self, case: RunCase, namespace: str = "") -> Answers | None:
        """The results of the calls, and why they end; None where the Job ended without an answer.

        Raises:
            TooLong: the case does not fit in a Job.
            Unavailable: the cluster does not run it in time; ask again later.
        """
        name = f"run-{uuid7()}"
        body = manifest(name, self._image, case)
        async with self._places.of(namespace):
            try:
                await self._kube.request("POST", self._path("apis/batch/v1", "jobs"), body=body)
            except ApiServerRefused as refusal:
                raise Unavailable(f"the sandbox {self._namespace} ({refusal.message[:200]})", retry_after=30) from None
            try:
                async with asyncio.timeout(case.seconds + START_SECONDS):
                    return await self._ended(name)
            except TimeoutError:
                raise Unavailable(f"the sandbox {self._namespace} (no end in time)", retry_after=30) from None
            except ApiServerRefused as refusal:
                raise Unavailable(f"the sandbox {self._namespace} ({refusal.message[:200]})", retry_after=30) from None
            finally:
                await asyncio.shield(self._delete(name))

    async def _ended(self, name: str) -> Answers | None:
        pods = self._path("api/v1", "pods")
        while True:
            query = {"labelSelector": f"batch.kubernetes.io/job-name={name}", "limit": "2"}
            pods_of_job = (await self._kube.request("GET", pods, query=query))["items"]
            done = next((pod for pod in pods_of_job if pod.get("status", {}).get("phase") in ENDED), None)
            if done is not None:
                log = f"{pods}/{quote(done['metadata']['name'])}/log"
                return read_answer(
                    await self._kube.request("GET", log, query={"limitBytes": str(LONGEST_ANSWER)}, text=True)
                )
            await asyncio.sleep(self._look)

    async def _delete(self, name: str) -> None:
        """Deletes the Job; where that fails, its time to live does."""
        with contextlib.suppress(ApiServerRefused, Unavailable):
            path = f"{self._path('apis/batch/v1', 'jobs')}/{name}"
            await self._kube.request("DELETE", path, body={"propagationPolicy": "Background"})

    def _path(self, api: str, resource: str) -> str:
        return f"/{api}/namespaces/{quote(self._namespace, safe='')}/{resource}"


def read_answer(log: str) -> Answers | None:
    """A Job's answer, which is not trusted either."""
    lines = log[-LONGEST_ANSWER:].strip().splitlines()
    try:
        answer: Any = json.loads(lines[-1])
        results, note = answer["results"], answer["note"]
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return (results, note[:500]) if isinstance(results, list) and isinstance(note, str) else None
