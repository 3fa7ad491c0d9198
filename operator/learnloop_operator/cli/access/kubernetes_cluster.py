"""A cluster by the official Kubernetes client, whose import takes a second."""

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from learnloop_api.names import GROUP, VERSION
from learnloop_operator.cli.access.cluster import KINDS, SECONDS, WATCH_SECONDS, Object
from learnloop_operator.cli.access.jobs import Jobs, KubernetesJobs
from learnloop_operator.cli.access.secrets import KubernetesSecrets, Secrets
from learnloop_operator.cli.access.service_proxy import SendRequest, refused, through, unreachable
from learnloop_operator.cli.errors import CommandError

TOKEN_SECONDS = 600
"""The shortest life the API server gives a token."""


class KubernetesCluster:
    """One context of a kubeconfig, or the pod's own account; every request at most ten seconds."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
        try:
            if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config()
            else:
                config.load_kube_config(kubeconfig, context)
        except Exception as error:  # what is no kubeconfig ends its reader in many ways: TypeError, YAMLError, …
            raise CommandError(f"no usable kubeconfig: {error}; set KUBECONFIG, --kubeconfig or --context") from error
        self.namespace = namespace or _current_namespace(kubeconfig, context)
        self._objects, self._events = client.CustomObjectsApi(), client.EventsV1Api()
        self._identity, self._accounts = client.AuthenticationV1Api(), client.CoreV1Api()

    @property
    def api(self) -> client.ApiClient:
        """The connection, with the caller's credentials."""
        return self._objects.api_client

    def within(self, namespace: str) -> "KubernetesCluster":
        """The same cluster and caller, in another namespace."""
        other = copy.copy(self)
        other.namespace = namespace
        return other

    def user(self) -> str:
        """The caller's name as the API server knows it; empty where it does not say (before Kubernetes 1.28)."""
        try:
            review = self._identity.create_self_subject_review({}, _request_timeout=SECONDS)
        except ApiException:
            return ""
        except HTTPError as error:
            raise unreachable(error) from error
        return str(review.status.user_info.username or "")

    def get(self, plural: str, name: str) -> Object:
        """The object, or a refusal that names it."""
        body = self.find(plural, name)
        if body is None:
            raise CommandError(
                f"no {KINDS[plural]} {name!r} in namespace {self.namespace!r}; "
                f"`kubectl get {plural} -n {self.namespace}` lists what there is"
            )
        return body

    def find(self, plural: str, name: str) -> Object | None:
        """The object, or None."""
        try:
            found = self._objects.get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, plural, name, _request_timeout=SECONDS
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error
        return cast(Object, found)

    def every(self, plural: str) -> list[Object]:
        """All objects of the namespace."""
        return list(self.listed(plural)[1].values())

    def listed(self, plural: str) -> tuple[str, dict[str, Object]]:
        """The version of the list, and all objects of the namespace by name."""
        try:
            found = self._objects.list_namespaced_custom_object(
                GROUP, VERSION, self.namespace, plural, _request_timeout=SECONDS
            )
        except ApiException as error:
            if error.status == 404:
                raise CommandError(f"the cluster does not know {plural}.{GROUP}: install learnloop's CRDs") from error
            raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error
        items = cast(list[Object], found["items"])
        return str(found["metadata"]["resourceVersion"]), {item["metadata"]["name"]: item for item in items}

    def watch(self, plural: str, version: str) -> Iterator[tuple[str, Object]]:
        """Changes since `version` (ADDED, MODIFIED, DELETED) for a few minutes, or until the API server ends it.

        410 Gone ends it too, silently: the caller lists again.
        """
        stream = watch.Watch().stream(
            self._objects.list_namespaced_custom_object,
            GROUP,
            VERSION,
            self.namespace,
            plural,
            resource_version=version,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(SECONDS, WATCH_SECONDS + SECONDS),
        )
        try:
            for event in stream:
                yield event["type"], cast(Object, event["object"])
        except ApiException as error:
            if error.status != 410:
                raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error

    def annotate(self, plural: str, name: str, values: Mapping[str, str | None]) -> None:
        """Set annotations; None removes one."""
        body = {"metadata": {"annotations": dict(values)}}
        try:
            self._objects.patch_namespaced_custom_object(
                GROUP, VERSION, self.namespace, plural, name, body, _request_timeout=SECONDS
            )
        except ApiException as error:
            raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error

    def dry_run(self, plural: str, body: Object) -> Object:
        """The object as it would be stored: checked, with its defaults, and not written."""
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}/{name}"
        query = {"dryRun": "All", "fieldManager": "kubectl-learnloop", "fieldValidation": "Strict", "force": "true"}
        headers = {"Accept": "application/json", "Content-Type": "application/apply-patch+yaml"}
        try:
            found = self._objects.api_client.call_api(
                path,
                "PATCH",
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                response_type="object",
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=SECONDS,
            )
        except ApiException as error:
            raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error
        return cast(Object, found)

    def proxy(self, service: str) -> Callable[[str, Mapping[str, str]], tuple[int, str]]:
        """GET requests to `NAMESPACE/NAME:PORT` through the API server, below /api/v1/."""
        namespace, _, target = service.partition("/")
        root = f"/api/v1/namespaces/{namespace}/services/{target}/proxy/api/v1"

        def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
            try:
                answer = self._objects.api_client.call_api(
                    f"{root}/{path}",
                    "GET",
                    query_params=list(form.items()),
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _return_http_data_only=True,
                    _request_timeout=SECONDS,
                )
            except ApiException as error:
                said = f"Service {service} through the API server: {refused(error)}"
                raise CommandError(
                    f"{said}; name another with --prometheus-service, or use --prometheus URL"
                ) from error
            except HTTPError as error:
                raise unreachable(error) from error
            return int(answer.status), answer.data.decode("utf-8", "replace")

        return ask

    def forward(self, service: str) -> SendRequest:
        """Requests to `NAMESPACE/NAME:PORT` through the API server."""
        return through(self._objects.api_client, service)

    def secrets(self, namespace: str) -> Secrets:
        """Secrets of one namespace, and the parts that read them."""
        return KubernetesSecrets(self.api, namespace)

    def jobs(self, namespace: str) -> Jobs:
        """Jobs of the chart's CronJobs in another namespace than the agents'."""
        return KubernetesJobs(self._objects.api_client, namespace)

    def token(self, account: str, audience: str) -> str:
        """A token of a service account of the namespace, for ten minutes."""
        wish = {"spec": {"audiences": [audience], "expirationSeconds": TOKEN_SECONDS}}
        try:
            granted = self._accounts.create_namespaced_service_account_token(
                account, self.namespace, wish, _request_timeout=SECONDS
            )
        except ApiException as error:
            raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error
        return str(granted.status.token)

    def events(self, body: Object) -> list[Object]:
        """Events about the object, oldest first; none where events may not be read."""
        try:
            found = self._events.list_namespaced_event(
                self.namespace, field_selector=f"regarding.uid={body['metadata']['uid']}", _request_timeout=SECONDS
            )
        except ApiException:
            return []
        except HTTPError as error:
            raise unreachable(error) from error
        oldest = datetime.min.replace(tzinfo=UTC)

        def moment(item: Any) -> datetime:
            at = item.event_time or item.deprecated_last_timestamp or item.metadata.creation_timestamp
            return cast(datetime, at or oldest)

        rows = sorted(found.items, key=moment)
        return [
            {"at": moment(item).astimezone(UTC), "type": item.type, "reason": item.reason, "note": item.note}
            for item in rows
        ]


def _current_namespace(kubeconfig: str | None, context: str | None) -> str:
    try:
        contexts, active = config.list_kube_config_contexts(kubeconfig)
    except config.ConfigException:
        return "default"
    chosen = next((item for item in contexts if item["name"] == context), active) if context else active
    return str(chosen.get("context", {}).get("namespace") or "default")
