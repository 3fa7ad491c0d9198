"""HTTP with retries: bounded in time, backing off with jitter, its token read anew for each request."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from learnloop_common.tls.contexts import client_context
from learnloop_trainer.errors import StoreRefused, StoreUnavailable

# 401 and 403 are worth a retry: the kubelet may just be rotating the token, the data plane just fetching its keys.
RETRIED = frozenset({401, 403, 408, 425, 429})


def _problem(response: httpx.Response) -> str:
    try:
        error = response.json()["error"]
        field = f"{error['field']}: " if error.get("field") else ""
        return f"{field}{error['message']}"[:500]
    except (ValueError, KeyError, TypeError, AttributeError):
        return " ".join(response.text.split())[:200] or response.reason_phrase


class Http:
    """A client of one base URL. Safe to use from several threads."""

    def __init__(self, base: str, token_file: Path, namespace: str, patience: float) -> None:
        """`patience`: seconds one call may take, retries included."""
        self._client = httpx.Client(
            base_url=base, timeout=httpx.Timeout(30.0, connect=5.0), follow_redirects=False, verify=client_context()
        )
        self._base, self._token_file, self._namespace, self._patience = base, token_file, namespace, patience
        self.closing = threading.Event()
        self.waiting: Callable[[str], None] = lambda _: None
        """Called with the cause before each retry, and with "" when a retry got through."""

    def _headers(self) -> dict[str, str]:
        headers = {"x-learnloop-namespace": self._namespace} if self._namespace else {}
        with contextlib.suppress(OSError, UnicodeDecodeError):  # there is no token outside of a cluster
            headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"
        return headers

    def once(self, method: str, path: str, timeout: float, content: bytes | None = None) -> None:
        """One attempt with a JSON body; any failure is StoreUnavailable."""
        headers = self._headers() | {"content-type": "application/json"}
        try:
            response = self._client.request(method, path, content=content, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            raise StoreUnavailable(f"{self._base}: {type(error).__name__}: {error}") from None
        if response.status_code >= 400:
            raise StoreUnavailable(f"{self._base}{path}: {response.status_code} {_problem(response)}")

    def call(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | int | list[str]] | None = None,
        limit: int = 64 << 20,
        patience: float | None = None,
    ) -> httpx.Response | None:
        """The successful answer, None for 404; raises StoreUnavailable after `patience`, StoreRefused for other 4xx."""
        end, delay, failed = time.monotonic() + (patience or self._patience), 0.2, False
        while True:
            try:
                answer = self._attempt(method, path, content, {**self._headers(), **(headers or {})}, params, limit)
                if failed:
                    self.waiting("")
                return answer
            except StoreUnavailable as error:
                failed = True
                self.waiting(str(error))
                wait = delay * random.uniform(0.5, 1.5)
                if time.monotonic() + wait > end or self.closing.wait(wait):
                    raise StoreUnavailable(f"{error}; gave up after {patience or self._patience:.0f} s") from None
                delay = min(delay * 2, 10.0)

    def _attempt(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        params: Mapping[str, str | int | list[str]] | None,
        limit: int,
    ) -> httpx.Response | None:
        where = f"{method} {self._base}{path}"
        try:
            with self._client.stream(method, path, content=content, headers=headers, params=params) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > limit:
                        raise StoreRefused(f"{where}: the answer is larger than {limit} bytes")
        except httpx.HTTPError as error:
            raise StoreUnavailable(f"{where}: {type(error).__name__}: {error}") from None
        kept = [(k, v) for k, v in response.headers.items() if k not in {"content-encoding", "content-length"}]
        answer = httpx.Response(response.status_code, headers=kept, content=bytes(body))
        if answer.status_code == 404 and method == "GET":
            return None
        if answer.status_code in RETRIED or answer.status_code >= 500:
            raise StoreUnavailable(f"{where}: {answer.status_code} {_problem(answer)}")
        if answer.status_code >= 300:
            raise StoreRefused(f"{where}: {answer.status_code} {_problem(answer)}")
        return answer
