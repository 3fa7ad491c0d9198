"""Jobs made of the chart's CronJobs, with the caller's own rights, and the Deployment that a restore waits for."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from learnloop_operator.cli.access.service_proxy import refused, unreachable
from learnloop_operator.cli.errors import CommandError

SECONDS = 10
POLL_SECONDS = 2.0
LAST_LINES = 20


class Jobs(Protocol):
    """What backups need of one namespace; every method raises CommandError."""

    def start(self, cron_job: str, variables: Mapping[str, str]) -> str: ...

    def end(self, job: str, seconds: float) -> str: ...

    def scale(self, deployment: str, replicas: int, seconds: float) -> int: ...


class KubernetesJobs:
    """One namespace of a cluster."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._batch, self._apps, self._core = client.BatchV1Api(api), client.AppsV1Api(api), client.CoreV1Api(api)
        self.namespace = namespace

    def start(self, cron_job: str, variables: Mapping[str, str]) -> str:
        """Makes a Job of a CronJob's template; variables of its containers that it already has take these values.
        Returns its name."""
        template = _asked(
            lambda: self._batch.read_namespaced_cron_job(cron_job, self.namespace, _request_timeout=SECONDS)
        )
        job = template.spec.job_template
        for container in [*(job.spec.template.spec.init_containers or []), *job.spec.template.spec.containers]:
            for variable in container.env or []:
                variable.value = variables.get(variable.name, variable.value)
        name = f"{cron_job}-{datetime.now(UTC):%Y%m%d%H%M%S}"
        metadata = client.V1ObjectMeta(name=name, namespace=self.namespace, labels=template.metadata.labels)
        body = client.V1Job(api_version="batch/v1", kind="Job", metadata=metadata, spec=job.spec)
        _asked(lambda: self._batch.create_namespaced_job(self.namespace, body, _request_timeout=SECONDS))
        return name

    def end(self, job: str, seconds: float) -> str:
        """The last line that its last container wrote. Raises CommandError when it fails, or has not ended in time."""
        deadline = time.monotonic() + seconds
        while True:
            found = _asked(lambda: self._batch.read_namespaced_job(job, self.namespace, _request_timeout=SECONDS))
            for condition in found.status.conditions or []:
                if condition.status == "True" and condition.type == "Complete":
                    return self._last_words(job)
                if condition.status == "True" and condition.type == "Failed":
                    raise CommandError(f"Job {job} failed: {self._last_words(job) or condition.message}")
            if time.monotonic() >= deadline:
                raise CommandError(
                    f"Job {job} has not ended in {seconds:.0f} s; it goes on, and its pod's log says more"
                )
            time.sleep(POLL_SECONDS)

    def scale(self, deployment: str, replicas: int, seconds: float) -> int:
        """Sets the replicas, and waits until there are no more pods than that. Returns how many there were to be."""
        before = self._deployment(deployment).spec.replicas
        patch = {"spec": {"replicas": replicas}}
        _asked(
            lambda: self._apps.patch_namespaced_deployment_scale(
                deployment, self.namespace, patch, _request_timeout=SECONDS
            )
        )
        deadline = time.monotonic() + seconds
        while (self._deployment(deployment).status.replicas or 0) > replicas:
            if time.monotonic() >= deadline:
                raise CommandError(f"Deployment {deployment} still has pods after {seconds:.0f} s: see what holds them")
            time.sleep(POLL_SECONDS)
        return int(before)

    def _deployment(self, name: str) -> Any:
        return _asked(lambda: self._apps.read_namespaced_deployment(name, self.namespace, _request_timeout=SECONDS))

    def _last_words(self, job: str) -> str:
        """Of the newest pod, and there of the container that ended last."""
        pods = _asked(
            lambda: self._core.list_namespaced_pod(
                self.namespace, label_selector=f"batch.kubernetes.io/job-name={job}", _request_timeout=SECONDS
            )
        ).items
        if not pods:
            return ""
        pod = max(pods, key=lambda item: item.metadata.creation_timestamp)
        states = [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]
        ended = [state.name for state in states if state.state.terminated is not None]
        if not ended:
            return ""
        text = _asked(
            lambda: self._core.read_namespaced_pod_log(
                pod.metadata.name, self.namespace, container=ended[-1], tail_lines=LAST_LINES, _request_timeout=SECONDS
            )
        )
        return str(text).strip().rpartition("\n")[2]


def _asked(request: Callable[[], Any]) -> Any:
    try:
        return request()
    except ApiException as error:
        raise refused(error) from error
    except HTTPError as error:
        raise unreachable(error) from error
