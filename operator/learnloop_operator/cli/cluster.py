"""A cluster as the caller's kubectl reaches it, as raw dicts, through a `kubectl proxy` of one command's own.

kubectl knows every way to log in, and is there where its plugin runs.
"""

import copy
import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

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

_WITH_ITS_PARENT = """seconds=$1; shift; exec 3<&0; { trap '' HUP TERM; read _ <&3; kill -TERM 0
while kill -0 $$ && [ $seconds -gt 0 ]; do sleep 1; seconds=$((seconds - 1)); done; kill -KILL 0; } >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null"""
ENV_SOCKET = "LEARNLOOP_API_SOCKET"
"""Path of one machine's API server, which takes no kubectl (hack/learnloop_local)."""
NOT_FOUND = 127
"""The shell's exit status without the program."""
ATTEMPTS = 4
"""Of a request that the API server was too busy for; it says when to try again."""


def with_its_parent(command: Sequence[str], seconds: int = 10) -> list[str]:
    """Runs a program, in a session of its own, until this process ends: SIGTERM, then SIGKILL for the session."""
    return ["/bin/sh", "-c", _WITH_ITS_PARENT, "sh", str(seconds), *command]


class ApiSocket:
    """Requests to an API server on a socket that only the caller can open."""

    def __init__(self, path: str) -> None:
        self._socket = path

    def open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Object | None,
        seconds: float,
    ) -> http.client.HTTPResponse:
        """The beginning of an answer; a busy API server is asked again when it says so. Raises NoAnswerError."""
        target = f"{path}?{urlencode(query)}" if query else path
        sent = {"Content-Type": "application/json", "Connection": "close", **headers}
        for attempt in range(ATTEMPTS):
            connection = _SocketConnection(self._socket, seconds)
            with answered():
                connection.request(method, target, None if body is None else json.dumps(body), sent)
                answer = connection.getresponse()
                if answer.status == 500 and "Audit-Id" not in answer.headers:  # kubectl's own answer
                    raise unreachable(decoded(answer.read()).strip())
            after = answer.headers.get("Retry-After", "")
            if answer.status != 429 or not after.isdecimal() or attempt == ATTEMPTS - 1:
                break
            time.sleep(int(after))
        return answer


class KubectlProxy(ApiSocket):
    """The same through kubectl.

    Raises:
        CommandError: kubectl is missing, or cannot use the kubeconfig.
    """

    def __init__(self, options: Sequence[str]) -> None:
        folder = tempfile.TemporaryDirectory(prefix="learnloop-", ignore_cleanup_errors=True)
        super().__init__(f"{folder.name}/socket")
        with open(f"{folder.name}/log", "w+") as log:
            process = subprocess.Popen(
                with_its_parent(["kubectl", *options, "proxy", "--unix-socket", self._socket]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
            weakref.finalize(self, _end, process, folder)
            assert process.stdout is not None
            if not process.stdout.readline():  # it says where it serves, or ends
                if process.wait() == NOT_FOUND:
                    raise CommandError("kubectl is not on PATH, and every command goes through it: install it")
                log.seek(0)
                raise no_kubeconfig(log.read())


def _end(process: "subprocess.Popen[bytes]", folder: "tempfile.TemporaryDirectory[str]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    folder.cleanup()


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@contextmanager
def answered() -> Iterator[None]:
    """Turns a broken connection into a NoAnswerError."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise unreachable(error) from error


def whole(answer: http.client.HTTPResponse) -> tuple[int, str]:
    """Status and body. Raises NoAnswerError."""
    with answered():
        return answer.status, decoded(answer.read())


def unreachable(reason: object) -> CommandError:
    return NoAnswerError(f"the API server does not answer: {reason}")


def no_kubeconfig(reason: str) -> CommandError:
    sentence = reason.strip().removeprefix("error: ")
    return CommandError(f"no usable kubeconfig: {sentence}; set KUBECONFIG, --kubeconfig or --context")


def decoded(body: bytes) -> str:
    return body.decode("utf-8", "replace")


SECONDS = 10.0
WATCH_SECONDS = 10.0
"""Short, so that an API server that falls silent is noticed."""
HUNG_UP = (500, 502, 503)
"""The API server's answer when the other end closed the connection, as a TLS server does on plain HTTP."""
GO_SERVER_WANTS_TLS = "Client sent an HTTP request to an HTTPS server"


class KubernetesCluster:
    """One context of a kubeconfig, or the pod's own account. Each request takes ten seconds at most.

    Every method raises CommandError.
    """

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
        given = (("--kubeconfig", kubeconfig), ("--context", context))
        options = [word for option, value in given if value is not None for word in (option, value)]
        self.namespace = namespace or "default"
        if local := os.environ.get(ENV_SOCKET):
            self._proxy: ApiSocket = ApiSocket(local)
            return
        self._proxy = KubectlProxy(options)
        view = [*options, "config", "view", "--minify", "--output", "jsonpath={..namespace}"]
        current = subprocess.run(["kubectl", *view], capture_output=True, text=True, check=False)
        if current.returncode == 0:
            self.namespace = namespace or current.stdout or "default"
        elif options or "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise no_kubeconfig(current.stderr)

    def within(self, namespace: str) -> "KubernetesCluster":
        """The same cluster and caller, in another namespace."""
        other = copy.copy(self)
        other.namespace = namespace
        return other

    def _ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        plural: str = "",
    ) -> Any:
        """The answer's JSON. `plural`: a 404 means that its CRD is missing."""
        status, text = whole(self._proxy.open(method, path, query or {}, headers or {}, body, SECONDS))
        if status >= 400:
            raise refusal(status, text, plural)
        return json.loads(text)

    # The caller

    def user(self) -> str:
        """The caller's name as the API server knows it; empty before Kubernetes 1.28."""
        try:
            review = self._ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        except NoAnswerError:
            raise
        except CommandError:
            return ""
        return str(review["status"]["userInfo"].get("username") or "")

    def allowed(self, verb: str, plural: str, namespace: str | None) -> bool:
        """Whether the caller may do this to objects of our group; namespace None: in the whole cluster."""
        where = {"namespace": namespace} if namespace else {}
        attributes = {"verb": verb, "group": GROUP, "resource": plural, **where}
        review = {"spec": {"resourceAttributes": attributes}}
        answer = self._ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    def token(self, account: str, audience: str) -> str:
        """A token of a service account of the namespace, for ten minutes."""
        body = {"spec": {"audiences": [audience], "expirationSeconds": 600}}  # the shortest life of a token
        path = f"/api/v1/namespaces/{quote(self.namespace)}/serviceaccounts/{quote(account, safe='')}/token"
        return str(self._ask("POST", path, body)["status"]["token"])

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
        status, text = whole(self._proxy.open("GET", self._path(plural, name), {}, {}, None, SECONDS))
        if status >= 400 and status != 404:
            raise refusal(status, text)
        body: Object | None = None if status == 404 else json.loads(text)
        return body

    def every(self, plural: str) -> list[Object]:
        return self.list_objects(plural, self.namespace)[1]

    def annotate(self, plural: str, name: str, values: Mapping[str, str | None]) -> None:
        body = {"metadata": {"annotations": dict(values)}}
        merge = {"Content-Type": "application/merge-patch+json"}
        self._ask("PATCH", self._path(plural, name), body, headers=merge)

    def create(self, plural: str, body: Object) -> None:
        self._ask("POST", _list(plural, self.namespace), body, plural=plural)

    def delete(self, plural: str, name: str) -> None:
        self._ask("DELETE", self._path(plural, name), plural=plural)

    def _path(self, plural: str, name: str) -> str:
        return f"{_list(plural, self.namespace)}/{quote(name, safe='')}"

    def events(self, body: Object) -> list[Object]:
        """Events about the object, oldest first; none where events may not be read."""
        path = f"/apis/events.k8s.io/v1/namespaces/{quote(self.namespace)}/events"
        try:
            answer = self._ask("GET", path, query={"fieldSelector": f"regarding.uid={body['metadata']['uid']}"})
        except NoAnswerError:
            raise
        except CommandError:
            return []

        def moment(item: Object) -> datetime:
            times = (item.get("eventTime"), item.get("deprecatedLastTimestamp"), item["metadata"]["creationTimestamp"])
            return datetime.fromisoformat(next(filter(None, times))).astimezone(UTC)

        return [
            {"at": moment(item), "type": item.get("type"), "reason": item.get("reason"), "note": item.get("note")}
            for item in sorted(answer["items"], key=moment)
        ]

    # Lists and watches of any namespace; None: of all

    def list_objects(self, plural: str, namespace: str | None) -> tuple[str, list[Object]]:
        """The version of the list, and its objects."""
        answer = self._ask("GET", _list(plural, namespace), plural=plural)
        return str(answer["metadata"]["resourceVersion"]), answer["items"]

    def changes(self, plural: str, namespace: str | None, version: str) -> Iterator[tuple[str, Object]]:
        """Changes since `version`: ADDED, MODIFIED, DELETED, or BOOKMARK, which has a newer version alone.

        It ends after a few seconds or when the API server ends it; resume from the version of the last change.

        Raises:
            VersionGoneError: list again.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        query["timeoutSeconds"] = f"{WATCH_SECONDS:.0f}"
        answer = self._proxy.open("GET", _list(plural, namespace), query, {}, None, WATCH_SECONDS + 2)
        with answered():
            if answer.status >= 400:
                raise refusal(answer.status, decoded(answer.read()), plural)
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise refusal(int(event["object"]["code"]), json.dumps(event["object"]), plural)
                yield event["type"], event["object"]

    def forward(self, service: str) -> SendRequest:
        """Any requests to `NAMESPACE/NAME:PORT` through the API server."""
        return through(lambda *request: whole(self._proxy.open(*request)), service)


def _list(plural: str, namespace: str | None) -> str:
    return f"/apis/{GROUP}/{VERSION}/" + (f"namespaces/{quote(namespace, safe='')}/" if namespace else "") + plural


def through(api: SendRequest, service: str) -> SendRequest:
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
            status, text = api(method, root + path, query, headers, body, seconds)
            own = status >= 400 and _is_status(text)
            if root != candidates[-1] and _wants_tls(status, text, own):
                continue
            if own:
                raise CommandError(f"Service {service} through the API server: {refusal(status, text)}")
            if status < 400:
                roots[:] = [root]
            return status, text
        raise AssertionError("the last root answers or raises")

    return send


def refusal(status: int, body: str, plural: str = "") -> CommandError:
    if status == 404 and plural:
        return NotAllowedError(f"the cluster does not know {plural}.{GROUP}: install learnloop's CRDs")
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        message = body.strip()[:300] or "without a reason"
    sentence = f"the API server refuses ({status}): {message}"
    if status == 410:
        return VersionGoneError(sentence)
    if status in (401, 403):
        return NotAllowedError(sentence)
    # 429 and 5xx: overload, a new leader of etcd, an upgrade.
    return NoAnswerError(sentence) if status == 429 or status >= 500 else CommandError(sentence)


def _wants_tls(status: int, body: str, own: bool) -> bool:
    return (own and status in HUNG_UP) or (status == 400 and GO_SERVER_WANTS_TLS in body)


def _is_status(body: str) -> bool:
    """Whether this is the API server's own answer, a metav1.Status."""
    try:
        return bool(json.loads(body)["kind"] == "Status")
    except (ValueError, KeyError, TypeError):
        return False


if TYPE_CHECKING:
    Cluster = KubernetesCluster
else:
    Cluster = Any  # typer reads annotations, and takes no classes of ours
