"""Jobs of the chart's CronJobs, Secrets, and the pods that read them, with the caller's own rights."""

import base64
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from learnloop_operator.cli.cluster import SECONDS, answered
from learnloop_operator.cli.objects import CommandError, SecretReference

POLL_SECONDS = 2.0
LAST_LINES = 20
RESTARTED = "kubectl.kubernetes.io/restartedAt"


class Workloads:
    """One namespace of a cluster; every method raises CommandError."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._batch, self._apps, self._core = client.BatchV1Api(api), client.AppsV1Api(api), client.CoreV1Api(api)
        self.namespace = namespace

    # Jobs

    def start(self, cron_job: str, variables: Mapping[str, str]) -> str:
        """Make a Job of a CronJob's template, with these values of the variables that it has. Returns its name."""
        with answered():
            template = self._batch.read_namespaced_cron_job(cron_job, self.namespace, _request_timeout=SECONDS)
        job = template.spec.job_template
        for container in [*(job.spec.template.spec.init_containers or []), *job.spec.template.spec.containers]:
            for variable in container.env or []:
                variable.value = variables.get(variable.name, variable.value)
        name = f"{cron_job}-{datetime.now(UTC):%Y%m%d%H%M%S}"
        metadata = client.V1ObjectMeta(name=name, namespace=self.namespace, labels=template.metadata.labels)
        body = client.V1Job(api_version="batch/v1", kind="Job", metadata=metadata, spec=job.spec)
        with answered():
            self._batch.create_namespaced_job(self.namespace, body, _request_timeout=SECONDS)
        return name

    def end(self, job: str, seconds: float) -> str:
        """Wait for a Job; the last line that its last container wrote. Raises CommandError when it fails or is late."""
        deadline = time.monotonic() + seconds
        while True:
            with answered():
                body = self._batch.read_namespaced_job(job, self.namespace, _request_timeout=SECONDS)
            for condition in body.status.conditions or []:
                if condition.status == "True" and condition.type == "Complete":
                    return self._last_line(job)
                if condition.status == "True" and condition.type == "Failed":
                    raise CommandError(f"Job {job} failed: {self._last_line(job) or condition.message}")
            if time.monotonic() >= deadline:
                raise CommandError(f"Job {job} has not ended in {seconds:.0f} s; it goes on: read its pod's log")
            time.sleep(POLL_SECONDS)

    def _last_line(self, job: str) -> str:
        """Of the newest pod, and there of the container that ended last."""
        selector = f"batch.kubernetes.io/job-name={job}"
        with answered():
            pods = self._core.list_namespaced_pod(
                self.namespace, label_selector=selector, _request_timeout=SECONDS
            ).items
        if not pods:
            return ""
        pod = max(pods, key=lambda item: item.metadata.creation_timestamp)
        states = [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]
        ended = [state.name for state in states if state.state.terminated is not None]
        if not ended:
            return ""
        name = pod.metadata.name
        with answered():
            log = self._core.read_namespaced_pod_log(
                name, self.namespace, container=ended[-1], tail_lines=LAST_LINES, _request_timeout=SECONDS
            )
        return str(log).strip().rpartition("\n")[2]

    # Secrets

    def read(self, name: str, key: str) -> tuple[str, str]:
        """The value, and the version of the Secret that it was read from."""
        with answered():
            secret = self._core.read_namespaced_secret(name, self.namespace, _request_timeout=SECONDS)
        if key not in (secret.data or {}):
            keys = ", ".join(secret.data or {})
            raise CommandError(f"Secret {self.namespace}/{name} has no {key}: name one of {keys}")
        try:
            return base64.b64decode(secret.data[key]).decode(), secret.metadata.resource_version
        except UnicodeDecodeError:
            raise CommandError(
                f"Secret {self.namespace}/{name}, key {key} holds raw bytes, and lines are text: write the new value "
                "there yourself"
            ) from None

    def write(self, name: str, key: str, value: str, version: str) -> None:
        """Refused when the Secret was written since `version`."""
        body = {"metadata": {"resourceVersion": version}, "data": {key: base64.b64encode(value.encode()).decode()}}
        with answered():
            self._core.patch_namespaced_secret(name, self.namespace, body, _request_timeout=SECONDS)

    # Deployments and StatefulSets

    def scale(self, deployment: str, replicas: int, seconds: float) -> int:
        """Set the replicas and wait until no more pods than that run. Returns the replicas before."""
        before, patch = self._live("Deployment", deployment).spec.replicas, {"spec": {"replicas": replicas}}
        with answered():
            self._apps.patch_namespaced_deployment_scale(deployment, self.namespace, patch, _request_timeout=SECONDS)
        deadline = time.monotonic() + seconds
        while (self._live("Deployment", deployment).status.replicas or 0) > replicas:
            if time.monotonic() >= deadline:
                raise CommandError(f"Deployment {deployment} still has pods after {seconds:.0f} s: see what holds them")
            time.sleep(POLL_SECONDS)
        return int(before)

    def restart(self, kind: str, name: str, seconds: float) -> bool:
        """Replace the pods as the strategy says, and wait. False: it does not exist."""
        if self._find(kind, name) is None:
            return False
        now = datetime.now(UTC).isoformat()
        body = {"spec": {"template": {"metadata": {"annotations": {RESTARTED: now}}}}}
        patch = {
            "Deployment": self._apps.patch_namespaced_deployment,
            "StatefulSet": self._apps.patch_namespaced_stateful_set,
        }[kind]
        with answered():
            patch(name, self.namespace, body, _request_timeout=SECONDS)
        deadline = time.monotonic() + seconds
        while not rolled(live := self._live(kind, name)):
            if time.monotonic() >= deadline:
                raise CommandError(f"{kind} {name} is not replaced after {seconds:.0f} s: see what holds its pods")
            time.sleep(POLL_SECONDS)
        # Terminating pods are not counted any more, but still finish their requests.
        time.sleep(float(live.spec.template.spec.termination_grace_period_seconds or 0))
        return True

    def pods(self, kind: str, name: str) -> int | None:
        """The wanted replicas of a Deployment or StatefulSet; None: there is none."""
        live = self._find(kind, name)
        return None if live is None else int(live.spec.replicas or 0)

    def environment(self, name: str) -> dict[str, str | SecretReference] | None:
        """Variables of a Deployment's containers, as values or references; None: it does not exist."""
        live = self._find("Deployment", name)
        if live is None:
            return None
        pod = live.spec.template.spec
        variables: dict[str, str | SecretReference] = {}
        for variable in (item for one in [*(pod.init_containers or ()), *pod.containers] for item in one.env or ()):
            secret = variable.value_from.secret_key_ref if variable.value_from else None
            value = SecretReference(secret.name, secret.key) if secret else variable.value or ""
            variables[variable.name] = value
        return variables

    def _live(self, kind: str, name: str) -> Any:
        read = {
            "Deployment": self._apps.read_namespaced_deployment,
            "StatefulSet": self._apps.read_namespaced_stateful_set,
        }[kind]
        with answered():
            return read(name, self.namespace, _request_timeout=SECONDS)

    def _find(self, kind: str, name: str) -> Any:
        """None: there is none."""
        try:
            return self._live(kind, name)
        except CommandError as error:
            if isinstance(error.__cause__, ApiException) and error.__cause__.status == 404:
                return None
            raise


def rolled(workload: Any) -> bool:
    """Whether all pods are of the newest template, and ready."""
    wanted, status = workload.spec.replicas, workload.status
    observed = (status.observed_generation or 0) >= workload.metadata.generation
    counts = (status.updated_replicas or 0, status.ready_replicas or 0, status.replicas or 0)
    return observed and counts == (wanted, wanted, wanted)
