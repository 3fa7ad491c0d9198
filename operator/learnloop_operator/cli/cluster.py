"""A cluster by the official Kubernetes client, as raw dicts. Importing the client takes a second."""

import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from learnloop_api.names import GROUP, VERSION
from learnloop_operator.cli.objects import (
    KINDS,
    CommandError,
    NoAnswerError,
    NotAllowedError,
    Object,
    SendRequest,
    VersionGoneError,
)

SECONDS = 10
WATCH_SECONDS = 10
"""Short, so that an API server that falls silent is noticed."""
TOKEN_SECONDS = 600
"""The shortest life that the API server gives a token."""
HUNG_UP = (500, 502, 503)
"""The API server's answer when the other end closed the connection, as a TLS server does on plain HTTP."""
GO_SERVER_WANTS_TLS = "Client sent an HTTP request to an HTTPS server"


@contextmanager
def answered(plural: str = "") -> Iterator[None]:
    """Turns the client's exceptions into CommandErrors. `plural`: a 404 means that its CRD is missing."""
    try:
        yield
    except ApiException as error:
        raise refusal(error, plural) from error
    except HTTPError as error:
        raise unreachable(error) from error


class KubernetesCluster:
    """One context of a kubeconfig, or the pod's own account. Each request takes ten seconds at most.

    Every method raises CommandError.
    """

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
        try:
            if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config()
            else:
                config.load_kube_config(kubeconfig, context)
        except Exception as error:  # an invalid file ends its reader in many ways: TypeError, YAMLError, …
            raise CommandError(f"no usable kubeconfig: {error}; set KUBECONFIG, --kubeconfig or --context") from error
        self.namespace = namespace or _current_namespace(kubeconfig, context)
        self.api = client.ApiClient()
        self._objects, self._events = client.CustomObjectsApi(self.api), client.EventsV1Api(self.api)
        self._identity, self._rights = client.AuthenticationV1Api(self.api), client.AuthorizationV1Api(self.api)
        self._core = client.CoreV1Api(self.api)

    def within(self, namespace: str) -> "KubernetesCluster":
        """The same cluster and caller, in another namespace."""
        other = copy.copy(self)
        other.namespace = namespace
        return other

    # The caller

    def user(self) -> str:
        """The caller's name as the API server knows it; empty before Kubernetes 1.28."""
        try:
            review = self._identity.create_self_subject_review({}, _request_timeout=SECONDS)
        except ApiException:
            return ""
        except HTTPError as error:
            raise unreachable(error) from error
        return str(review.status.user_info.username or "")

    def allowed(self, verb: str, plural: str, namespace: str | None) -> bool:
        """Whether the caller may do this to objects of our group; namespace None: in the whole cluster."""
        attributes = {"verb": verb, "group": GROUP, "resource": plural} | (
            {"namespace": namespace} if namespace else {}
        )
        review = {"spec": {"resourceAttributes": attributes}}
        with answered():
            answer = self._rights.create_self_subject_access_review(review, _request_timeout=SECONDS)
        return bool(answer.status.allowed)

    def token(self, account: str, audience: str) -> str:
        """A token of a service account of the namespace, for ten minutes."""
        body = {"spec": {"audiences": [audience], "expirationSeconds": TOKEN_SECONDS}}
        with answered():
            granted = self._core.create_namespaced_service_account_token(
                account, self.namespace, body, _request_timeout=SECONDS
            )
        return str(granted.status.token)

    # Objects of the namespace

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
        with answered():
            try:
                body = self._objects.get_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, plural, name, _request_timeout=SECONDS
                )
            except ApiException as error:
                if error.status == 404:
                    return None
                raise
        return cast(Object, body)

    def every(self, plural: str) -> list[Object]:
        return self.list_objects(plural, self.namespace)[1]

    def annotate(self, plural: str, name: str, values: Mapping[str, str | None]) -> None:
        """Set annotations; None removes one."""
        body = {"metadata": {"annotations": dict(values)}}
        with answered():
            self._objects.patch_namespaced_custom_object(
                GROUP, VERSION, self.namespace, plural, name, body, _request_timeout=SECONDS
            )

    def events(self, body: Object) -> list[Object]:
        """Events about the object, oldest first; none where events may not be read."""
        selector = f"regarding.uid={body['metadata']['uid']}"
        try:
            answer = self._events.list_namespaced_event(
                self.namespace, field_selector=selector, _request_timeout=SECONDS
            )
        except ApiException:
            return []
        except HTTPError as error:
            raise unreachable(error) from error
        oldest = datetime.min.replace(tzinfo=UTC)

        def moment(item: Any) -> datetime:
            at = item.event_time or item.deprecated_last_timestamp or item.metadata.creation_timestamp
            return cast(datetime, at or oldest)

        return [
            {"at": moment(item).astimezone(UTC), "type": item.type, "reason": item.reason, "note": item.note}
            for item in sorted(answer.items, key=moment)
        ]

    # Lists and watches of any namespace; None: of all

    def list_objects(self, plural: str, namespace: str | None) -> tuple[str, list[Object]]:
        """The version of the list, and its objects."""
        method, place = self._list(plural, namespace)
        with answered(plural):
            answer = method(*place, _request_timeout=SECONDS)
        return str(answer["metadata"]["resourceVersion"]), cast(list[Object], answer["items"])

    def changes(self, plural: str, namespace: str | None, version: str) -> Iterator[tuple[str, Object]]:
        """Changes since `version`: ADDED, MODIFIED, DELETED, or BOOKMARK, which has a newer version alone.

        It ends after a few seconds or when the API server ends it; resume from the version of the last change.

        Raises:
            VersionGoneError: list again.
        """
        method, place = self._list(plural, namespace)
        stream = watch.Watch().stream(
            method,
            *place,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(SECONDS, WATCH_SECONDS + 2),
        )
        with answered(plural):
            for event in stream:
                yield event["type"], cast(Object, event["raw_object"])

    def _list(self, plural: str, namespace: str | None) -> tuple[Callable[..., Any], tuple[str, ...]]:
        if namespace is None:
            return self._objects.list_cluster_custom_object, (GROUP, VERSION, plural)
        return self._objects.list_namespaced_custom_object, (GROUP, VERSION, namespace, plural)

    def forward(self, service: str) -> SendRequest:
        """Any requests to `NAMESPACE/NAME:PORT` through the API server."""
        return through(self.api, service)


def through(api: client.ApiClient, service: str) -> SendRequest:
    """Requests to a Service through the API server; a refusal of the service itself is returned as it is.

    The first answer shows whether it speaks TLS: reading the Service would take one more right.
    """
    namespace, _, target = service.partition("/")
    root = f"/api/v1/namespaces/{namespace}/services"
    roots = [f"{root}/{target}/proxy"]
    if not target.startswith(("http:", "https:")):
        roots.append(f"{root}/https:{target}/proxy")

    def send(
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Object | None,
        seconds: float,
    ) -> tuple[int, str]:
        candidates = list(roots)
        for root in candidates:
            try:
                answer = api.call_api(
                    root + path,
                    method,
                    query_params=list(query.items()),
                    header_params={**headers, "Content-Type": "application/json"},
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _return_http_data_only=True,
                    _request_timeout=seconds,
                )
            except ApiException as error:
                own = _is_status(error.body)
                if root != candidates[-1] and _wants_tls(error, own):
                    continue
                if own:
                    raise CommandError(f"Service {service} through the API server: {refusal(error)}") from error
                return int(error.status or 0), _text(error.body)
            except HTTPError as error:
                raise unreachable(error) from error
            roots[:] = [root]
            return int(answer.status), _text(answer.data)
        raise AssertionError("the last root answers or raises")

    return send


def refusal(error: ApiException, plural: str = "") -> CommandError:
    if error.status == 404 and plural:
        return NotAllowedError(f"the cluster does not know {plural}.{GROUP}: install learnloop's CRDs")
    try:
        message = json.loads(error.body)["message"]
    except (ValueError, KeyError, TypeError):
        message = error.reason
    sentence, status = f"the API server refuses ({error.status}): {message}", int(error.status or 0)
    if status == 410:
        return VersionGoneError(sentence)
    if status in (401, 403):
        return NotAllowedError(sentence)
    # 429 and 5xx: overload, a new leader of etcd, an upgrade.
    return NoAnswerError(sentence) if status == 429 or status >= 500 else CommandError(sentence)


def unreachable(error: HTTPError) -> CommandError:
    return NoAnswerError(f"the API server does not answer: {error}")


def _wants_tls(error: ApiException, own: bool) -> bool:
    return (own and error.status in HUNG_UP) or (error.status == 400 and GO_SERVER_WANTS_TLS in _text(error.body))


def _is_status(body: Any) -> bool:
    """Whether this is the API server's own answer, a metav1.Status."""
    try:
        return bool(json.loads(body)["kind"] == "Status")
    except (ValueError, KeyError, TypeError):
        return False


def _text(body: Any) -> str:
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")


def _current_namespace(kubeconfig: str | None, context: str | None) -> str:
    try:
        contexts, active = config.list_kube_config_contexts(kubeconfig)
    except config.ConfigException:
        return "default"
    chosen = next((item for item in contexts if item["name"] == context), active) if context else active
    return str(chosen.get("context", {}).get("namespace") or "default")
