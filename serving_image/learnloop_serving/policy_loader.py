"""The policies before anything was learned, and how long a policy takes."""

import asyncio
import hashlib
import logging
import re
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import numpy as np

from learnloop_api.kinds.behaviour import SAMPLED
from learnloop_api.uniform_policy import UniformSpaces, parse
from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_common.acting.policy import ModelError, Numbers, Observations, Policy, Results
from learnloop_common.tls import client_context
from learnloop_serving.settings import Settings


class UniformPolicy:
    """Everything equally likely, the honest baseline before anything was learned: choices, numbers, or both."""

    platform = "learnloop_uniform"
    behaviour = SAMPLED
    memory = 0

    def __init__(self, choices: int, observations: int | None, numbers: Numbers | None = None) -> None:
        """Without a mean and a deviation in what `run` gives, numbers are drawn from their bounds."""
        self.observations, self.numbers, self._choices = observations, numbers, choices
        self.continuous, self.actions = numbers is not None, choices if numbers is None else numbers.dimensions
        greedy: list[float] = [0.0] if choices else []
        if numbers is not None:
            greedy += [low / 2 + high / 2 for low, high in zip(numbers.low, numbers.high, strict=True)]
        self._greedy = np.asarray(greedy, dtype=np.float32 if self.continuous else np.int64)

    def run(self, observation: Observations, memory: Observations | None = None) -> Results:
        """See Policy.run. The greedy action is the first choice, by the usual tie rule, or the middle of all bounds."""
        batch = observation.shape[0]
        results: Results = {"action": np.tile(self._greedy, (batch, 1))}
        if not self.continuous:
            results["action"] = results["action"].ravel()
        if self._choices:
            results["logits"] = np.zeros((batch, self._choices), dtype=np.float32)
        return results


def uniform(spaces: UniformSpaces) -> Policy:
    """Anything that these spaces have, each as likely."""
    numbers = Numbers(spaces.low, spaces.high, spaces.choices) if spaces.low else None
    return UniformPolicy(spaces.choices, spaces.observations, numbers)


def measure(policy: Policy) -> float:
    """Seconds one observation takes, the median of five runs after a warm-up."""
    observation = np.zeros((1, policy.observations or 1), dtype=np.float32)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        policy.run(observation)
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[2]


log = logging.getLogger(__name__)
CHUNK = 1 << 20
MAX_MODEL_BYTES = 512 * 2**20
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


class TransientError(RuntimeError):
    """The network or the far side is not there right now; worth another try."""


async def load_policy(settings: Settings) -> Policy:
    """Load what `settings.model_uri` names; raises ModelError with one sentence for the operator.

    Network trouble is retried for `load_retry_seconds` first; a missing or wrong file is not.
    """
    uri = settings.model_uri
    scheme = urlsplit(uri).scheme
    if scheme == "uniform":
        return parse_uniform(uri)
    if not settings.model_sha256:
        raise ModelError(f"LEARNLOOP_MODEL_SHA256: empty for {uri}: every model but uniform:// needs its digest")
    with tempfile.TemporaryFile() as file:  # without a name: a server that is killed here leaves nothing
        target = Path(f"/proc/self/fd/{file.fileno()}")
        digest = await fetch(settings, target)
        if digest != settings.model_sha256:
            raise ModelError(f"sha256: {uri} has {digest}, expected {settings.model_sha256}")
        try:
            return await asyncio.to_thread(OnnxPolicy, target)
        except ModelError as error:
            raise ModelError(f"{uri}: {error}") from error


def parse_uniform(uri: str) -> Policy:
    """The policy of a uniform:// address (see learnloop_api.uniform_policy); raises ModelError."""
    try:
        return uniform(parse(uri))
    except ValueError as error:
        raise ModelError(f"uri: {error}") from None


async def fetch(settings: Settings, target: Path, most_bytes: int = MAX_MODEL_BYTES) -> str:
    """Copy what `settings.model_uri` names to `target`; returns its SHA-256 in hex, which the caller has to compare.

    Network trouble is retried for `load_retry_seconds`. Raises ModelError.
    """
    scheme = urlsplit(settings.model_uri).scheme
    deadline = time.monotonic() + settings.load_retry_seconds
    pause = 0.25
    while True:
        try:
            return await _fetch(settings, scheme, target, most_bytes)
        except TransientError as error:
            if time.monotonic() + pause > deadline:
                raise ModelError(
                    f"{settings.model_uri} could not be fetched for {settings.load_retry_seconds:g} s: {error}"
                ) from error
            log.warning("model not fetched yet, trying again in %.1f s: %s", pause, error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 5.0)


async def _fetch(settings: Settings, scheme: str, target: Path, most_bytes: int) -> str:
    """Copy the model to `target`; returns its SHA-256 in hex."""
    uri = settings.model_uri
    if scheme in ("http", "https"):
        return await _download(uri, {}, settings, target, most_bytes, redirects=True)
    if scheme == "learnloop":
        return await _download(*_artifact(settings), settings, target, most_bytes, redirects=False)
    if scheme == "file":
        return await asyncio.to_thread(_copy, Path(unquote(urlsplit(uri).path)), settings, target, most_bytes)
    raise ModelError(
        f"uri: {uri}: scheme {scheme}:// is not supported by the policy server: "
        "use learnloop://, https://, file:// or uniform://"
    )


def _artifact(settings: Settings) -> tuple[str, dict[str, str]]:
    """Address and identity for learnloop://<namespace>/<sha256> at the data plane."""
    match = re.fullmatch(r"learnloop://([a-z0-9][-a-z0-9.]*)/([0-9a-f]{64})", settings.model_uri)
    if not match:
        raise ModelError(f"uri: {settings.model_uri} is not valid: write learnloop://<namespace>/<sha256>")
    if match[1] != settings.namespace:
        raise ModelError(
            f"uri: {settings.model_uri} belongs to namespace {match[1]}, this pod is in {settings.namespace}"
        )
    if not settings.data_url:
        raise ModelError("LEARNLOOP_DATA_URL: empty: learnloop:// models come from the data plane, give its address")
    headers = {}
    if settings.token_file.is_file():
        headers["authorization"] = f"Bearer {settings.token_file.read_text(encoding='utf-8').strip()}"
    return f"{settings.data_url}/api/v1/artifacts/{match[2]}", headers


async def _download(
    url: str, headers: dict[str, str], settings: Settings, target: Path, most_bytes: int, redirects: bool
) -> str:
    timeout = httpx.Timeout(15.0, connect=5.0)
    try:
        async with (
            httpx.AsyncClient(
                timeout=timeout, follow_redirects=redirects, max_redirects=5, verify=client_context()
            ) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            if response.status_code in TRANSIENT:
                raise TransientError(f"HTTP {response.status_code}")
            if response.status_code != 200:
                raise ModelError(
                    f"model uri {settings.model_uri} could not be fetched: HTTP {response.status_code}; "
                    "push the artifact to this namespace first, or correct the address"
                )
            return await _save(response.aiter_bytes(CHUNK), settings, target, most_bytes)
    except (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError) as error:
        raise TransientError(str(error) or type(error).__name__) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ModelError(f"{settings.model_uri} could not be fetched: {error}") from error


async def _save(chunks: AsyncIterator[bytes], settings: Settings, target: Path, most_bytes: int) -> str:
    digest, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        async for chunk in chunks:
            size += len(chunk)
            _check_size(size, settings, most_bytes)
            digest.update(chunk)
            await asyncio.to_thread(file.write, chunk)
    return digest.hexdigest()


def _copy(source: Path, settings: Settings, target: Path, most_bytes: int) -> str:
    digest, size = hashlib.sha256(), 0
    try:
        with source.open("rb") as incoming, target.open("wb") as outgoing:
            while chunk := incoming.read(CHUNK):
                size += len(chunk)
                _check_size(size, settings, most_bytes)
                digest.update(chunk)
                outgoing.write(chunk)
    except OSError as error:
        raise ModelError(f"{settings.model_uri} could not be read: {error.strerror or error}") from error
    return digest.hexdigest()


def _check_size(size: int, settings: Settings, most_bytes: int) -> None:
    if size > most_bytes:
        raise ModelError(f"{settings.model_uri} is larger than {most_bytes} bytes, the most a policy may be")
