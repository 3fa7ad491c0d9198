"""A run store in the data plane."""

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ConfigDict, Field

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire import language, training, trajectory
from learnloop_common.tls import client_context
from learnloop_trainer.errors import StoreRefused, StoreUnavailable
from learnloop_trainer.store.run_store import MAX_ARTIFACT, MAX_CHECKPOINT, SavedCheckpoint, digest, parsed, verified

# 401 and 403 are worth a retry: the kubelet may just be rotating the token, the data plane just fetching its keys.
RETRIED = frozenset({401, 403, 408, 425, 429})
LONGEST_PAUSE = 2.0
"""Seconds between two tries: a gang that ends before the next one loses what it learned meanwhile."""


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
        with contextlib.suppress(OSError, UnicodeDecodeError):  # a cluster mounts one
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
            began = time.monotonic()
            try:
                sent = {**self._headers(), **(headers or {})}
                answer = self._attempt(method, path, limit, content=content, headers=sent, params=params)
                if failed:
                    self.waiting("")
                return answer
            except StoreUnavailable as error:
                failed = True
                self.waiting(str(error))
                # A large body is sent half of the time at most.
                wait = max(delay * random.uniform(0.5, 1.5), time.monotonic() - began)
                if time.monotonic() + wait > end or self.closing.wait(wait):
                    raise StoreUnavailable(f"{error}; gave up after {patience or self._patience:.0f} s") from None
                delay = min(delay * 2, LONGEST_PAUSE)

    def _attempt(self, method: str, path: str, limit: int, **request: Any) -> httpx.Response | None:
        where = f"{method} {self._base}{path}"
        try:
            answer = self._client.request(method, path, **request)
        except httpx.HTTPError as error:
            raise StoreUnavailable(f"{where}: {type(error).__name__}: {error}") from None
        if len(answer.content) > limit:
            raise StoreRefused(f"{where}: the answer is larger than {limit} bytes")
        if answer.status_code == 404 and method == "GET":
            return None
        if answer.status_code in RETRIED or answer.status_code >= 500:
            raise StoreUnavailable(f"{where}: {answer.status_code} {_problem(answer)}")
        if answer.status_code >= 300:
            raise StoreRefused(f"{where}: {answer.status_code} {_problem(answer)}")
        return answer


HEARTBEAT_SECONDS = 2.0
UNEXPECTED = "the data plane's answer is not what was expected"
PAGE = 20
MAX_PAGE = 256 << 20
P = TypeVar("P", trajectory.EpisodePage, language.PreferencePage)


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore")
    uri: str = Field(max_length=2048)
    sha256: str


class _Recorded(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    observations: list[list[float]]


class DataPlaneStore:
    """One run in the data plane; the namespace is the token's."""

    def __init__(self, http: Http, job: str, agent: str | None = None, attempt: int | None = None) -> None:
        """The view of `job`, which trains `agent`, if any. `attempt`: of this gang, from 0."""
        self._http, self._run, self._agent = http, f"/api/v1/training/runs/{quote(job, safe='')}", agent
        self._attempt = attempt
        self._reading: Callable[[str], None] = lambda _: None

    def follow(self, reading: Callable[[str], None], waiting: Callable[[str], None]) -> None:
        """Call `reading` with each page of a log, and `waiting` with what the data plane does not answer."""
        self._reading, self._http.waiting = reading, waiting

    def heartbeat(self, beat: training.Heartbeat) -> None:
        self._http.once("PUT", f"{self._run}/heartbeat", HEARTBEAT_SECONDS, beat.model_dump_json().encode())

    def newest_heartbeat(self) -> training.Heartbeat | None:
        run = self._reported()
        return run.heartbeat if run else None

    def put_checkpoint(self, body: bytes, step: int) -> str:
        sha256 = digest(body)
        headers = {
            "x-learnloop-sha256": sha256,
            "x-learnloop-step": str(step),
            "content-type": "application/octet-stream",
        }
        if self._agent:
            headers["x-learnloop-agent"] = self._agent
        if self._attempt is not None:
            headers["x-learnloop-attempt"] = str(self._attempt)
        self._http.call("PUT", f"{self._run}/checkpoint", content=body, headers=headers)
        return sha256

    def checkpoint(self, back: int = 0) -> SavedCheckpoint | None:
        where = {"back": back} if back else None
        answer = self._http.call("GET", f"{self._run}/checkpoint", params=where, limit=MAX_CHECKPOINT)
        if answer is None:
            return None
        sha256, step = answer.headers.get("x-learnloop-sha256", ""), answer.headers.get("x-learnloop-step", "")
        if not step.isdecimal():
            raise StoreRefused(f"checkpoint: header x-learnloop-step is {step!r}, a whole number was expected")
        return SavedCheckpoint(verified(answer.content, sha256, "checkpoint"), int(step), sha256)

    def put_artifact(self, body: bytes) -> str:
        sha256 = digest(body)
        headers = {"x-learnloop-sha256": sha256, "content-type": "application/octet-stream"}
        answer = self._http.call("PUT", "/api/v1/artifacts", content=body, headers=headers)
        stored = parsed(_Stored, answer.content if answer else b"", "artifact", UNEXPECTED)
        if stored.sha256 != sha256:
            raise StoreRefused(f"artifact: the data plane stored {stored.sha256}, {sha256} was sent")
        return stored.uri

    def artifact(self, uri: str) -> bytes:
        sha256 = uri.rsplit("/", 1)[-1]
        answer = self._http.call("GET", f"/api/v1/artifacts/{quote(sha256, safe='')}", limit=MAX_ARTIFACT)
        if answer is None:
            raise StoreRefused(f"{uri}: the data plane has no such artifact in this namespace")
        return verified(answer.content, sha256, uri)

    def put_proof(self, proof: training.Proof) -> None:
        self._http.call(
            "PUT",
            f"{self._run}/proof",
            content=proof.model_dump_json().encode(),
            headers={"content-type": "application/json"},
        )

    def update(self) -> training.UpdateOrder | None:
        run = self._reported()
        return run.update if run else None

    def proof(self) -> training.Proof | None:
        run = self._reported()
        return run.proof if run else None

    def _reported(self) -> training.TrainingRun | None:
        answer = self._http.call("GET", self._run)
        return None if answer is None else parsed(training.TrainingRun, answer.content, "training run", UNEXPECTED)

    def observations(self, agent: str, limit: int) -> list[list[float]]:
        answer = self._http.call("GET", "/api/v1/experience/observations", params={"agent": agent, "limit": limit})
        what = f"observations of {agent}"
        return [] if answer is None else parsed(_Recorded, answer.content, what, UNEXPECTED).observations

    def reward_policy(self, name: str, revision: str) -> RewardPolicySpec:
        path = f"/api/v1/rewards/policies/{quote(name, safe='')}/revisions/{quote(revision, safe='')}"
        answer = self._http.call("GET", path)
        if answer is None:
            raise StoreRefused(f"reward policy {name}: the data plane has no revision {revision}; publish it")
        return parsed(RewardPolicySpec, answer.content, f"reward policy {name}", UNEXPECTED)

    def preferences(self, agent: str, limit: int) -> list[language.Preference]:
        preferences: list[language.Preference] = []
        what, path = f"preferences of {agent}", "/api/v1/preferences"
        for page in self._pages(language.PreferencePage, path, {"agent": agent, "limit": PAGE}, what):
            preferences += page.preferences
            if len(preferences) >= limit:
                break
        return preferences[:limit]

    def episodes(
        self, agent: str, selection: trajectory.EpisodeSelection, limit: int, patience: float | None = None
    ) -> list[trajectory.LoggedEpisode]:
        episodes: list[trajectory.LoggedEpisode] = []
        params = {"agent": agent, "limit": PAGE, **_query(selection)}
        path, steps = "/api/v1/experience/trajectories", 0
        for page in self._pages(trajectory.EpisodePage, path, params, f"log of {agent}", patience):
            episodes += page.trajectories
            steps += sum(len(episode.steps) for episode in page.trajectories)
            if steps >= limit:
                break
        return episodes

    def _pages(
        self, model: type[P], path: str, params: dict[str, Any], what: str, patience: float | None = None
    ) -> Iterator[P]:
        """Page by page, each one after the last item of the page before."""
        for number in count(1):
            self._reading(f"reads the {what}: page {number}")
            answer = self._http.call("GET", path, params=params, limit=MAX_PAGE, patience=patience)
            if answer is None:
                return
            page = parsed(model, answer.content, what, UNEXPECTED)
            yield page
            if page.next is None:
                return
            params["after"] = page.next


def _query(selection: trajectory.EpisodeSelection) -> dict[str, str | int | list[str]]:
    """As the parameters of a request: what is not asked for is left out."""
    fields = selection.model_dump(mode="json", exclude_defaults=True)
    return {key: json.dumps(value) if isinstance(value, bool) else value for key, value in fields.items()}
