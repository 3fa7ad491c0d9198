"""The policies that a run is compared with."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.language_model import BASE_SCHEME, LanguageSampling
from learnloop_environments import Bounds, VectorEnvironment, randomness
from learnloop_environments.conversations.conversation_world import ConversationWorld
from learnloop_environments.errors import ConfigError
from learnloop_trainer import (
    distributed,
    errors,
    evaluation,
    export,
    fallback_policy,
    progress_reporter,
    training_order,
)
from learnloop_trainer.export.language_model_files import CONFIG, Trained, put_into, read
from learnloop_trainer.language import base_model, chat_experience, lora, rows, sampler
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.store.run_store import MAX_ARTIFACT, Store, digest

FIELD = "baselineUri"
FIX = "point it to a learnloop ONNX policy for the same environment, or leave it empty for uniform random actions"
OF_AGENT = "an agent keeps what it sees and does: create another LearningAgent for an environment with other spaces"


def artifact(order: training_order.Order, store: Store) -> bytes | None:
    """The serving policy's file; None where actions are uniform. Raises ConfigError when it is not what was named."""
    uri = order.baseline_uri or "uniform://"
    if uri.startswith("uniform://"):
        return None
    return fetch(uri, store, FIELD, FIX, order.baseline_sha256)


def policy(
    order: training_order.Order, body: bytes | None, observations: int, actions: int, bounds: Bounds | None = None
) -> evaluation.Policy:
    """The policy in `body`, acting as it is served; raises ConfigError when it does not fit these spaces."""
    if body is None:
        return evaluation.Uniform(actions, order.spec.seed, bounds)
    try:
        return export.Behaving(
            export.OnnxPolicy(body, observations, actions, continuous=bounds is not None), order.spec.seed
        )
    except ValueError as error:
        fix = FIX if order.agent is None else OF_AGENT
        raise ConfigError(FIELD, order.baseline_uri or "", str(error), fix) from None


def with_fallback(order: training_order.Order, store: Store) -> training_order.Order:
    """The order with the file of its shield's fallback policy; raises ConfigError when it is not what was named."""
    wanted = order.spec.safety.fallback_policy if order.spec.safety is not None else None
    if wanted is None:
        return order
    body = fetch(wanted.uri, store, fallback_policy.FIELD, fallback_policy.FIX, wanted.sha256)
    return order.model_copy(update={"fallback": body})


def require_playable(order: training_order.Order, store: Store, environment: VectorEnvironment) -> None:
    """Raises ConfigError where the policy to beat cannot play the environment: better before a run than at its end."""
    policy(order, artifact(order, store), environment.observations, environment.actions, environment.bounds)


def fetch(uri: str, store: Store, field: str, fix: str, sha256: str | None = None) -> bytes:
    """The bytes behind a URI; raises ConfigError for `field`, with `fix`, without them or with another digest."""
    try:
        body = _read(uri, store)
    except (errors.StoreRefused, OSError) as error:
        raise ConfigError(field, uri, f"cannot be read ({error})", fix) from None
    if body is None:
        raise ConfigError(field, uri, "has a scheme the trainer cannot read", "use learnloop://, https:// or file://")
    if sha256 and digest(body) != sha256:
        name = field.replace("Uri", "Sha256") if field.endswith("Uri") else f"{field}.sha256"
        raise ConfigError(name, sha256, f"is not the digest of {uri}: {digest(body)}", fix)
    return body


def _read(uri: str, store: Store) -> bytes | None:
    """None for a scheme that is not read."""
    scheme = urlsplit(uri).scheme
    if scheme == "learnloop":
        return store.artifact(uri)
    if scheme == "file":
        path = Path(unquote(urlsplit(uri).path))
        if path.stat().st_size > MAX_ARTIFACT:
            raise errors.StoreRefused(f"larger than {MAX_ARTIFACT} bytes")
        return path.read_bytes()
    return _download(uri) if scheme in {"http", "https"} else None


def _download(uri: str) -> bytes:
    """Without any token: this is somebody else's server."""
    body = bytearray()
    try:
        with httpx.stream("GET", uri, timeout=30.0, follow_redirects=True) as response:
            if response.status_code >= 500:
                raise errors.StoreUnavailable(f"{uri}: {response.status_code}")
            if response.status_code >= 400:
                raise errors.StoreRefused(f"{response.status_code} {response.reason_phrase}")
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_ARTIFACT:
                    raise errors.StoreRefused(f"larger than {MAX_ARTIFACT} bytes")
    except httpx.HTTPError as error:
        raise errors.StoreUnavailable(f"{uri}: {type(error).__name__}: {error}") from None
    return bytes(body)


SIDE_BY_SIDE = 256
MODEL_FIX = (
    "name a language model that learnloop trained from the same base model, or leave it empty for the base alone"
)


def limits(sampling: LanguageSampling, chat: Chat, context: int, temperature: float | None = None) -> sampler.Limits:
    """How to draw; `temperature` in place of the model's own."""
    heat = sampling.temperature if temperature is None else temperature
    return sampler.Limits(heat, chat.stops, min(sampling.max_tokens, context), context)


def served(order: training_order.Order, store: Store, base: base_model.Base) -> tuple[str, str | None, Trained | None]:
    """The model to beat: its address, digest and file; None: the base alone.

    A model of another base cannot be compared on this one: then the base alone is. Raises ConfigError for a file that
    is not what was named, or nothing that learnloop trained.
    """
    alone = (f"{BASE_SCHEME}{base.sha256}", base.sha256, None)
    uri = order.baseline_uri or ""
    if not uri or uri.startswith((BASE_SCHEME, "uniform://")):
        return alone
    body = fetch(uri, store, FIELD, MODEL_FIX, order.baseline_sha256)
    trained = read_model(body, FIELD, uri, MODEL_FIX)
    if trained.facts["learnloop.base_sha256"] != base.sha256:
        progress_reporter.say(f"{uri} was trained from another base model: the base alone is compared with")
        return alone
    return uri, digest(body), trained


def read_model(body: bytes, field: str, uri: str, fix: str) -> Trained:
    """Raises ConfigError for what is none of learnloop's."""
    try:
        return read(body)
    except ValueError as error:
        raise ConfigError(field, uri, str(error), fix) from None


def scale_of(trained: Trained, field: str, uri: str) -> float:
    """alpha / rank of an adapter, as its adapter_config.json says; raises ConfigError."""
    try:
        config = json.loads(trained.facts[CONFIG])
        return float(config["lora_alpha"]) / int(config["r"])
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise ConfigError(field, uri, f"has no {CONFIG} with r and lora_alpha ({error})", MODEL_FIX) from None


def loaded(base: base_model.Base, trained: Trained | None, device: torch.device, dtype: torch.dtype, uri: str) -> Any:
    """A model that says what this file says; raises ConfigError where it does not fit the base.

    An adapter that cannot be added to the weights is attached to them, as where it was trained and where it is served.
    """
    model = base.model(device, dtype)
    if trained is None:
        return model
    scale = scale_of(trained, FIELD, uri) if trained.adapter else None
    try:
        if scale is not None and not lora.can_be_added(dtype):
            lora.attach_trained(model, trained.arrays, scale)
        else:
            put_into(model, trained, scale)
    except ValueError as error:
        raise ConfigError(FIELD, uri, f"does not fit the base model: {error}", MODEL_FIX) from None
    return model


class HeldOutTasks:
    """The conversations that prove a run: the same tasks and the same random numbers for every model."""

    def __init__(
        self,
        order: training_order.Order,
        world: ConversationWorld,
        chat: Chat,
        seed: int,
        ranks: distributed.Group | None = None,
    ) -> None:
        """`seed`: of the held-out episodes. `ranks`: who hold them together, each a part."""
        self._group = ranks or distributed.Alone()
        self._rollouts = sampler.Rollouts(order.environment, world, chat, seed, SIDE_BY_SIDE)

    def play(self, model: Any, limits: sampler.Limits, first: int, episodes: int) -> list[rows.Episode]:
        """Tasks first to first + episodes - 1. Collective where several ranks hold them; each then has all."""
        with torch.no_grad():
            return self.hold(nullcontext(model), limits, first, episodes)

    def hold(
        self, speaking: AbstractContextManager[Any], limits: sampler.Limits, first: int, episodes: int
    ) -> list[rows.Episode]:
        """The same with the model of a context, which ends before ranks share what they have."""
        share = self._group.place.share(episodes)
        draws = [sampler.Draw(task, task) for task in range(first + share.start, first + share.stop)]
        with speaking as speaker:
            own = self._rollouts.play(draws, randomness.Split.HELD_OUT, sampler.Sampler(speaker), limits, 0)
        return chat_experience.shared(own, self._group)


def returns(episodes: Sequence[rows.Episode]) -> NDArray[np.float64]:
    return np.asarray([episode.reward for episode in episodes], dtype=np.float64)
