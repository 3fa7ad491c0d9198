"""Runs cases as Jobs of the sandbox's namespace and reads what they found."""

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from learnloop_dataplane.concurrency.limits import FairPlaces
from learnloop_dataplane.errors import ApiServerRefused, Unavailable
from learnloop_dataplane.postgres.row_ids import uuid7
from learnloop_dataplane.sandbox.job import START_SECONDS, manifest
from learnloop_dataplane.sandbox.run_case import RunCase

if TYPE_CHECKING:
    from learnloop_dataplane.kubernetes.api_client import KubeApi

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
                return read(await self._kube.request("GET", log, query={"limitBytes": str(LONGEST_ANSWER)}, text=True))
            await asyncio.sleep(self._look)

    async def _delete(self, name: str) -> None:
        """Deletes the Job; where that fails, its time to live does."""
        with contextlib.suppress(ApiServerRefused, Unavailable):
            path = f"{self._path('apis/batch/v1', 'jobs')}/{name}"
            await self._kube.request("DELETE", path, body={"propagationPolicy": "Background"})

    def _path(self, api: str, resource: str) -> str:
        return f"/{api}/namespaces/{quote(self._namespace, safe='')}/{resource}"


def read(log: str) -> Answers | None:
    """A Job's answer, which is not trusted either."""
    lines = log[-LONGEST_ANSWER:].strip().splitlines()
    try:
        answer: Any = json.loads(lines[-1])
        results, note = answer["results"], answer["note"]
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return (results, note[:500]) if isinstance(results, list) and isinstance(note, str) else None
