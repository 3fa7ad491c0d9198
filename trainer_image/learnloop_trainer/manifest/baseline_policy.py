"""The policy to beat: the one that serves now, or uniform random actions when none does."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
from numpy.typing import NDArray

from learnloop_environments import Bounds, VectorEnvironment
from learnloop_environments.errors import ConfigError
from learnloop_trainer.errors import StoreRefused, StoreUnavailable
from learnloop_trainer.evaluation import Policy, Uniform
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.export.weights import read
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import MAX_ARTIFACT, digest
from learnloop_trainer.training_order import Order

Weights = Mapping[str, NDArray[Any]]
FIELD = "baselineUri"
FIX = "point it to a learnloop ONNX policy for the same environment, or leave it empty for uniform random actions"
OF_AGENT = "an agent keeps what it sees and does: create another LearningAgent for an environment with other spaces"


def artifact(order: Order, store: Store) -> bytes | None:
    """The serving policy's file; None where actions are uniform. Raises ConfigError when it is not what was named."""
    uri = order.baseline_uri or "uniform://"
    if uri.startswith("uniform://"):
        return None
    body = fetch(uri, store, FIELD, FIX)
    if order.baseline_sha256 and digest(body) != order.baseline_sha256:
        raise ConfigError("baselineSha256", order.baseline_sha256, f"is not the digest of {uri}: {digest(body)}", FIX)
    return body


def policy(order: Order, body: bytes | None, observations: int, actions: int, bounds: Bounds | None = None) -> Policy:
    """What `artifact` gave, acting as it is served; raises ConfigError when it does not fit these spaces."""
    if body is None:
        return Uniform(actions, order.spec.seed, bounds)
    try:
        return Behaving(OnnxPolicy(body, observations, actions, continuous=bounds is not None), order.spec.seed)
    except ValueError as error:
        fix = FIX if order.agent is None else OF_AGENT
        raise ConfigError(FIELD, order.baseline_uri or "", str(error), fix) from None


def require_playable(order: Order, store: Store, environment: VectorEnvironment) -> None:
    """Raises ConfigError where the policy to beat cannot play the environment: better before a run than at its end."""
    policy(order, artifact(order, store), environment.observations, environment.actions, environment.bounds)


def weights(body: bytes | None, fits: Callable[[str], bool]) -> Weights | None:
    """The serving policy's weights by name, where it was trained by an algorithm that `fits`."""
    if body is None:
        return None
    found, facts = read(body)
    return found if fits(facts.get("learnloop.algorithm", "")) else None


def fetch(uri: str, store: Store, field: str, fix: str) -> bytes:
    """The bytes behind a URI; raises ConfigError for `field`, with `fix`, when there are none to be had."""
    scheme = urlsplit(uri).scheme
    try:
        if scheme == "learnloop":
            return store.artifact(uri)
        if scheme == "file":
            path = Path(unquote(urlsplit(uri).path))
            if path.stat().st_size > MAX_ARTIFACT:
                raise ConfigError(field, uri, f"is larger than {MAX_ARTIFACT} bytes", fix)
            return path.read_bytes()
        if scheme in {"http", "https"}:
            return _download(uri)
    except (StoreRefused, OSError) as error:
        raise ConfigError(field, uri, f"cannot be read ({error})", fix) from None
    raise ConfigError(field, uri, "has a scheme the trainer cannot read", "use learnloop://, https:// or file://")


def _download(uri: str) -> bytes:
    """Without any token: this is somebody else's server."""
    body = bytearray()
    try:
        with httpx.stream("GET", uri, timeout=30.0, follow_redirects=True) as response:
            if response.status_code >= 500:
                raise StoreUnavailable(f"{uri}: {response.status_code}")
            if response.status_code >= 400:
                raise StoreRefused(f"{response.status_code} {response.reason_phrase}")
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_ARTIFACT:
                    raise StoreRefused(f"larger than {MAX_ARTIFACT} bytes")
    except httpx.HTTPError as error:
        raise StoreUnavailable(f"{uri}: {type(error).__name__}: {error}") from None
    return bytes(body)
