"""Requests to a Service through the API server, with the caller's kubeconfig."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from learnloop_operator.cli.errors import CommandError, NoAnswerError

SendRequest = Callable[[str, str, Mapping[str, str], Mapping[str, str], dict[str, Any] | None, float], tuple[int, str]]
"""One request: method, path, query, headers, JSON and seconds → status and body. Raises CommandError."""


UNSPOKEN = (500, 502, 503)
"""What the API server answers where the other end hung up, as a server of TLS does on plain HTTP."""
GO_SERVERS_SAY = "Client sent an HTTP request to an HTTPS server"


def through(api: client.ApiClient, service: str) -> SendRequest:
    """Requests to `NAMESPACE/NAME:PORT`; what the service itself refuses comes back as it is.

    Whether it speaks TLS the first answer says: reading the Service would take one more right.
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
        body: dict[str, Any] | None,
        seconds: float,
    ) -> tuple[int, str]:
        try:
            answer = api.call_api(
                roots[0] + path,
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
            if len(roots) > 1 and _other_scheme(int(error.status or 0), error.body):
                roots.pop(0)
                return send(method, path, query, headers, body, seconds)
            if _kubernetes(error.body):
                raise CommandError(f"Service {service} through the API server: {refused(error)}") from error
            return int(error.status or 0), _text(error.body)
        except HTTPError as error:
            raise unreachable(error) from error
        del roots[1:]
        return int(answer.status), _text(answer.data)

    return send


def refused(error: ApiException) -> CommandError:
    """What the API server says."""
    try:
        message = json.loads(error.body)["message"]
    except (ValueError, KeyError, TypeError):
        message = error.reason
    # 429 and 5xx: too much at once, a new leader of etcd, an upgrade.
    busy = error.status == 429 or (error.status or 0) >= 500
    return (NoAnswerError if busy else CommandError)(f"the API server refuses ({error.status}): {message}")


def unreachable(error: HTTPError) -> CommandError:
    """It says nothing."""
    return NoAnswerError(f"the API server does not answer: {error}")


def _other_scheme(status: int, body: Any) -> bool:
    """Whether the answer is what one gets who speaks plain HTTP to a server of TLS."""
    return (status in UNSPOKEN and _kubernetes(body)) or (status == 400 and GO_SERVERS_SAY in _text(body))


def _kubernetes(body: Any) -> bool:
    """Is this the API server's own answer, a metav1.Status?"""
    try:
        return bool(json.loads(body)["kind"] == "Status")
    except (ValueError, KeyError, TypeError):
        return False


def _text(body: Any) -> str:
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
