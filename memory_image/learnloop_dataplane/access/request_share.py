"""Limits the requests that one namespace has under way in this process, whichever addresses they come from."""

from collections import Counter
from collections.abc import MutableMapping
from typing import Any

from learnloop_dataplane.errors import ApiError

_KEY = "learnloop.namespace"


class RequestShare:
    """Counts requests by authenticated namespace; `most` 0: no limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: Counter[str] = Counter()

    def enter(self, scope: MutableMapping[str, Any], namespace: str) -> None:
        """Counts the request of this ASGI scope, once however often it is called.

        Raises:
            ApiError: 429, the namespace has as many under way as it may.
        """
        if _KEY in scope:
            return
        if self._most and self._under_way[namespace] >= self._most:
            raise ApiError(
                429,
                f"namespace {namespace} has {self._most} requests under way, the most it may have "
                "(dataPlane.requestsPerNamespace of the chart); send fewer at a time",
                retry_after=1,
            )
        scope[_KEY] = namespace
        self._under_way[namespace] += 1

    def leave(self, scope: MutableMapping[str, Any]) -> None:
        """Ends the request; does nothing for one that was never counted."""
        namespace = scope.pop(_KEY, None)
        if namespace is None:
            return
        self._under_way[namespace] -= 1
        if not self._under_way[namespace]:
            del self._under_way[namespace]
