"""Secrets and the parts that read them, with the caller's own rights."""

import base64
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from learnloop_operator.cli.access.service_proxy import refused, unreachable
from learnloop_operator.cli.errors import CommandError

SECONDS = 10
POLL_SECONDS = 2.0
RESTARTED = "kubectl.kubernetes.io/restartedAt"


class SecretReference(NamedTuple):
    """Where a variable's value comes from: a Secret, and a key of it."""

    secret: str
    key: str


class Secrets(Protocol):
    """What a rotation needs of one namespace; every method raises CommandError."""

    def read(self, name: str, key: str) -> tuple[str, str]: ...

    def write(self, name: str, key: str, value: str, version: str) -> None: ...

    def restart(self, kind: str, name: str, seconds: float) -> bool: ...

    def pods(self, kind: str, name: str) -> int | None: ...

    def environment(self, name: str) -> dict[str, str | SecretReference] | None: ...


class KubernetesSecrets:
    """One namespace of a cluster."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._core, self._apps, self.namespace = client.CoreV1Api(api), client.AppsV1Api(api), namespace

    def read(self, name: str, key: str) -> tuple[str, str]:
        """The value, and the version of the Secret that it was read from."""
        found = _asked(lambda: self._core.read_namespaced_secret(name, self.namespace, _request_timeout=SECONDS))
        if key not in (found.data or {}):
            raise CommandError(
                f"Secret {self.namespace}/{name} has no {key}: name one of {', '.join(found.data or {})}"
            )
        try:
            return base64.b64decode(found.data[key]).decode(), found.metadata.resource_version
        except UnicodeDecodeError:
            raise CommandError(
                f"Secret {self.namespace}/{name}, key {key} holds raw bytes, and lines are text: write the new value "
                "there yourself"
            ) from None

    def write(self, name: str, key: str, value: str, version: str) -> None:
        """Refused when somebody else wrote the Secret since `version`."""
        body = {"metadata": {"resourceVersion": version}, "data": {key: base64.b64encode(value.encode()).decode()}}
        _asked(lambda: self._core.patch_namespaced_secret(name, self.namespace, body, _request_timeout=SECONDS))

    def restart(self, kind: str, name: str, seconds: float) -> bool:
        """Replaces the pods of a Deployment or StatefulSet as its strategy says, and waits. False: there is none."""
        patch, read = {
            "Deployment": (self._apps.patch_namespaced_deployment, self._apps.read_namespaced_deployment),
            "StatefulSet": (self._apps.patch_namespaced_stateful_set, self._apps.read_namespaced_stateful_set),
        }[kind]
        now = datetime.now(UTC).isoformat()
        body = {"spec": {"template": {"metadata": {"annotations": {RESTARTED: now}}}}}
        try:
            patch(name, self.namespace, body, _request_timeout=SECONDS)
        except ApiException as error:
            if error.status == 404:
                return False
            raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error

        def found() -> Any:
            return _asked(lambda: read(name, self.namespace, _request_timeout=SECONDS))

        deadline = time.monotonic() + seconds
        while not rolled(found()):
            if time.monotonic() >= deadline:
                raise CommandError(f"{kind} {name} is not replaced after {seconds:.0f} s: see what holds its pods")
            time.sleep(POLL_SECONDS)
        # Pods that are counted no longer may still answer what they had begun.
        time.sleep(float(found().spec.template.spec.termination_grace_period_seconds or 0))
        return True

    def pods(self, kind: str, name: str) -> int | None:
        """How many a Deployment or StatefulSet has to have; None: there is none."""
        found = self._found(kind, name)
        return None if found is None else int(found.spec.replicas or 0)

    def environment(self, name: str) -> dict[str, str | SecretReference] | None:
        """What the containers of a Deployment have, by variable, as values or where those lie; None: there is none."""
        found = self._found("Deployment", name)
        if found is None:
            return None
        pod = found.spec.template.spec
        have: dict[str, str | SecretReference] = {}
        for variable in (item for one in [*(pod.init_containers or ()), *pod.containers] for item in one.env or ()):
            secret = variable.value_from.secret_key_ref if variable.value_from else None
            have[variable.name] = SecretReference(secret.name, secret.key) if secret else variable.value or ""
        return have

    def _found(self, kind: str, name: str) -> Any:
        """None: there is none."""
        read = {
            "Deployment": self._apps.read_namespaced_deployment,
            "StatefulSet": self._apps.read_namespaced_stateful_set,
        }[kind]
        try:
            return read(name, self.namespace, _request_timeout=SECONDS)
        except ApiException as error:
            if error.status == 404:
                return None
            raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error


def rolled(found: Any) -> bool:
    """Are all pods of the newest template, and ready?"""
    wanted, status = found.spec.replicas, found.status
    seen = (status.observed_generation or 0) >= found.metadata.generation
    counts = (status.updated_replicas or 0, status.ready_replicas or 0, status.replicas or 0)
    return seen and counts == (wanted, wanted, wanted)


def _asked(request: Callable[[], Any]) -> Any:
    try:
        return request()
    except ApiException as error:
        raise refused(error) from error
    except HTTPError as error:
        raise unreachable(error) from error
