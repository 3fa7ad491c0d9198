"""Requests to a Service through the API server, with the caller's kubeconfig."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from learnloop_operator.cli.errors import CommandError

SendRequest = Callable[[str, str, Mapping[str, str], Mapping[str, str], dict[str, Any] | None, float], tuple[int, str]]
"""One request: method, path, query, headers, JSON and seconds → status and body. Raises CommandError."""


def through(api: client.ApiClient, service: str) -> SendRequest:
    """Requests to `NAMESPACE/NAME:PORT`; what the service itself refuses comes back as it is."""
    namespace, _, target = service.partition("/")
    root = f"/api/v1/namespaces/{namespace}/services/{target}/proxy"

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
            if _kubernetes(error.body):
                raise CommandError(f"Service {service} through the API server: {refused(error)}") from error
            return int(error.status or 0), _text(error.body)
        except HTTPError as error:
            raise unreachable(error) from error
        return int(answer.status), _text(answer.data)

    return send


def refused(error: ApiException) -> CommandError:
    """What the API server says."""
    try:
        message = json.loads(error.body)["message"]
    except (ValueError, KeyError, TypeError):
        message = error.reason
    return CommandError(f"the API server refuses ({error.status}): {message}")


def unreachable(error: HTTPError) -> CommandError:
    """It says nothing."""
    return CommandError(f"the API server does not answer: {error}")


def _kubernetes(body: Any) -> bool:
    """Is this the API server's own answer, a metav1.Status?"""
    try:
        return bool(json.loads(body)["kind"] == "Status")
    except (ValueError, KeyError, TypeError):
        return False


def _text(body: Any) -> str:
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
