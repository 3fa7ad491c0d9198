"""Reads over several namespaces at once, and what the caller may do there."""

import socket
from collections.abc import Iterator, Sequence
from typing import cast

from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from learnloop_api.names import GROUP, VERSION
from learnloop_operator.cli.access.cluster import SECONDS, WATCH_SECONDS, Object
from learnloop_operator.cli.access.service_proxy import refused, unreachable
from learnloop_operator.cli.errors import CommandError

REACH_SECONDS = 1.5
"""For each of two tries. With the second between two questions, an API server that hangs is known after four; shorter
ones would call a busy server, or one that is far away, gone."""
# A watch over a connection that leads nowhere any more hears nothing for minutes: TCP itself notices in 25 seconds. Not
# every system calls these options so.
_ASKED = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _ASKED.items() if hasattr(socket, name)),
]
CHANGES = ("ADDED", "MODIFIED", "DELETED")


class NotAllowedError(CommandError):
    """The caller may not read this, or there is none; somewhere else, or of another kind, it may."""


class VersionGoneError(CommandError):
    """The API server no longer knows what changed since that version: list again."""


class AllNamespaces:
    """Lists, watches and reviews of rights; `namespace` None means the whole cluster."""

    def __init__(self, api: client.ApiClient) -> None:
        self._objects = client.CustomObjectsApi(api)
        self._core, self._rights = client.CoreV1Api(api), client.AuthorizationV1Api(api)
        self._pool, self._version = api.rest_client.pool_manager, f"{api.configuration.host}/version"
        self._pool.connection_pool_kw["socket_options"] = HTTPConnection.default_socket_options + KEEP_ALIVE

    def reach(self) -> None:
        """Asks for the version, which everybody may; any answer of the API server's own will do.

        Raises:
            CommandError: there is none within twice REACH_SECONDS.
        """
        twice = Retry(total=1, backoff_factor=0)  # a connection that rested may have been closed meanwhile
        try:
            answer = self._pool.request("GET", self._version, retries=twice, timeout=REACH_SECONDS)
        except HTTPError as error:
            raise unreachable(error) from error
        if answer.status in (502, 503, 504):
            raise CommandError(f"the API server does not answer: {answer.status} of what is before it")

    def listed(self, plural: str, namespace: str | None) -> tuple[str, list[Object]]:
        """The version of the list, and its objects.

        Raises:
            NotAllowedError: the caller may not list them there.
            CommandError: the kind is unknown, or the API server does not answer.
        """
        try:
            if namespace is None:
                found = self._objects.list_cluster_custom_object(GROUP, VERSION, plural, _request_timeout=SECONDS)
            else:
                found = self._objects.list_namespaced_custom_object(
                    GROUP, VERSION, namespace, plural, _request_timeout=SECONDS
                )
        except ApiException as error:
            raise _said(error, plural) from error
        except HTTPError as error:
            raise unreachable(error) from error
        return str(found["metadata"]["resourceVersion"]), cast(list[Object], found["items"])

    def changes(self, plural: str, namespace: str | None, version: str) -> Iterator[tuple[str, Object]]:
        """Changes since `version` (ADDED, MODIFIED, DELETED, or BOOKMARK, which has a newer version alone).

        It ends after a few minutes, or when the API server ends it; go on from the version of the last one.

        Raises:
            VersionGoneError: list again.
            CommandError: the API server refuses, or does not answer.
        """
        everywhere = namespace is None
        of = (GROUP, VERSION, plural) if namespace is None else (GROUP, VERSION, namespace, plural)
        stream = watch.Watch().stream(
            self._objects.list_cluster_custom_object if everywhere else self._objects.list_namespaced_custom_object,
            *of,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(SECONDS, WATCH_SECONDS + SECONDS),
        )
        try:
            for event in stream:
                yield event["type"], cast(Object, event["raw_object"])
        except ApiException as error:
            raise _said(error, plural) from error
        except HTTPError as error:
            raise unreachable(error) from error

    def namespaces(self) -> list[str]:
        """Names of all namespaces; none where the caller may not list them."""
        try:
            found = self._core.list_namespace(_request_timeout=SECONDS)
        except ApiException:
            return []
        except HTTPError as error:
            raise unreachable(error) from error
        return [str(item.metadata.name) for item in found.items]

    def allowed(self, verb: str, plural: str, namespace: str | None, group: str = GROUP) -> bool:
        """Whether the caller may do this, by a SelfSubjectAccessReview; `plural` may be `kind/subresource`."""
        resource, _, subresource = plural.partition("/")
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        review = {"spec": {"resourceAttributes": asked | ({"namespace": namespace} if namespace else {})}}
        try:
            found = self._rights.create_self_subject_access_review(review, _request_timeout=SECONDS)
        except ApiException as error:
            raise refused(error) from error
        except HTTPError as error:
            raise unreachable(error) from error
        return bool(found.status.allowed)

    def readable(self, plural: str, candidates: Sequence[str]) -> list[str]:
        """Those of the namespaces in which the caller may list this kind."""
        return [name for name in candidates if self.allowed("list", plural, name)]


def _said(error: ApiException, plural: str) -> CommandError:
    if error.status == 404:
        return NotAllowedError(f"the cluster does not know {plural}.{GROUP}: install learnloop's CRDs")
    said = str(refused(error))
    if error.status == 410:
        return VersionGoneError(said)
    return NotAllowedError(said) if error.status in (401, 403) else CommandError(said)
