"""The episodes API of the policy server, with bounded retries."""

import asyncio
import logging
import random
import re
import time
from math import isfinite
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import to_json

from learnloop_api import names
from learnloop_api.wire.routing import ActResponse, EndEpisode, OpenedEpisode, OpenEpisode, ServingError
from learnloop_sdk.errors import (
    ArmWithdrawn,
    Counters,
    FallbackOrdered,
    InvalidObservation,
    LearnloopError,
    PolicyFailed,
    PolicyRefused,
    PolicyUnavailable,
    Stopped,
    Throttled,
)
from learnloop_sdk.http_client import Http, Identity, Response

log = logging.getLogger(__name__)
TRANSIENT = frozenset({408, 421, 425, 429, 502, 503, 504})
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
END_SECONDS = 2.0  # an agent waits no longer to report an outcome


class PolicyClient:
    """Opens, acts in and ends episodes; raises the errors of learnloop_sdk.errors. Durations in seconds."""

    def __init__(
        self,
        endpoint: str,
        counters: Counters,
        *,
        timeout: float,
        retry_seconds: float,
        http: Http,
        identity: Identity | None = None,
    ) -> None:
        self._endpoint, self._counters = endpoint.rstrip("/"), counters
        self._timeout, self._retry_seconds = timeout, retry_seconds
        self._http, self._identity = http, identity

    async def open(self, request: OpenEpisode) -> OpenedEpisode:
        """Get an arm for a new episode."""
        body = request.model_dump_json(exclude_none=True).encode()
        response = await self._post(self._endpoint, "/v1/episodes", body, {}, self._retry_seconds)
        try:
            return OpenedEpisode.model_validate_json(response.body)
        except ValidationError as error:
            raise LearnloopError(f"{self._endpoint} is not a learnloop policy server: {error}") from error

    async def act(
        self, episode: OpenedEpisode, observation: list[float], explore: bool, memory: str = ""
    ) -> ActResponse:
        """Get the arm's decision; `memory`: of the episode's last one."""
        if not isfinite(sum(observation)):
            raise InvalidObservation(
                "observation: must be finite numbers: one is NaN or infinite, or all are too large"
            )
        # json.dumps would take 4 µs for four numbers, at every step; this takes 0.3.
        fields = {"observation": observation, "explore": explore}
        body = to_json(fields | {"memory": memory} if memory else fields)
        response = await self._to_arm(episode, "act", body, self._retry_seconds)
        try:
            return ActResponse.model_validate_json(response.body)
        except ValidationError as error:
            raise PolicyFailed(f"the policy server's answer is not valid: {error}") from error

    async def end(self, episode: OpenedEpisode, ending: EndEpisode) -> None:
        """Report the outcome to the arm."""
        body = ending.model_dump_json(exclude_none=True).encode()
        await self._to_arm(episode, "end", body, min(END_SECONDS, self._retry_seconds))

    async def _to_arm(self, episode: OpenedEpisode, verb: str, body: bytes, patience: float) -> Response:
        base = episode.url.rstrip("/") or self._endpoint
        header = {names.HEADER_ARM: episode.revision}
        return await self._post(base, f"/v1/episodes/{episode.episode_id}/{verb}", body, header, patience)

    async def _post(self, base: str, path: str, body: bytes, headers: dict[str, str], patience: float) -> Response:
        """Send one request, with retries for `patience` seconds. Each try reads the token."""
        deadline = time.monotonic() + patience
        pause = FIRST_PAUSE
        while True:
            try:
                response = await self._http.post(f"{base}{path}", body, headers | self._proof(base), self._timeout)
                if response.status < 300:
                    return response
                trouble = _trouble(response)
                if response.status not in TRANSIENT:
                    raise trouble
            except (OSError, TimeoutError) as error:
                trouble = PolicyUnavailable(f"{base} does not answer: {str(error) or type(error).__name__}")
            least = trouble.retry_after if isinstance(trouble, Throttled) else 0.0
            if time.monotonic() + max(pause, least) > deadline:
                raise trouble
            self._counters.request_retries += 1
            await asyncio.sleep(least + pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _proof(self, base: str) -> dict[str, str]:
        token = self._identity.token() if self._identity and own_service(self._endpoint, base) else ""
        return {"authorization": f"Bearer {token}"} if token else {}


def own_service(endpoint: str, base: str) -> bool:
    """Is `base` the endpoint's host or an arm of the same ModelDeployment (NAME-REVISION)? Tokens go to no other:
    a forged routing table could name any address."""
    (name, *domain), (arm, *arms_domain) = (_labels(address) for address in (endpoint, base))
    if (name, domain) == (arm, arms_domain):
        return True
    return re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{8}}", arm) is not None and domain in ([], arms_domain)


def _labels(address: str) -> list[str]:
    """Labels of the host name, without the endings that a cluster's own names may omit."""
    return (urlsplit(address).hostname or "").removesuffix(".cluster.local").removesuffix(".svc").split(".")


_BY_REASON: dict[str, type[LearnloopError]] = {"Stopped": Stopped, "FallbackOrdered": FallbackOrdered}
# 404: the servers have a new key, and do not recognise the ids of the old one.
_BY_STATUS: dict[int, type[LearnloopError]] = {
    **dict.fromkeys(TRANSIENT, PolicyUnavailable),
    **dict.fromkeys((404, 410, 421), ArmWithdrawn),
    **dict.fromkeys((401, 403), PolicyRefused),
    **dict.fromkeys((400, 413), InvalidObservation),
}


def _trouble(response: Response) -> LearnloopError:
    """The server's refusal as an exception."""
    try:
        refusal = ServingError.model_validate_json(response.body)
    except ValidationError:
        return PolicyUnavailable(f"HTTP {response.status} from something that is not a learnloop policy server")
    if refusal.reason == "Throttled":
        return Throttled(refusal.message, refusal.retry_after or 1)
    kind = _BY_REASON.get(refusal.reason) or _BY_STATUS.get(response.status, PolicyFailed)
    return kind(refusal.message)
