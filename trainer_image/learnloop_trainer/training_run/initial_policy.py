"""The weights that a run begins from."""

import json
from collections.abc import Mapping
from typing import Any

from learnloop_api.kinds.language_model import BASE_SCHEME
from learnloop_common.acting.policy import ALGORITHM
from learnloop_environments.errors import ConfigError
from learnloop_trainer.algorithms import Learner, find, traits_of
from learnloop_trainer.algorithms.weight_transfer import Weights, warm
from learnloop_trainer.export import OnnxPolicy
from learnloop_trainer.export.language import BASE, CONFIG, Trained, read
from learnloop_trainer.export.other_formats import read as read_graph
from learnloop_trainer.language import lora
from learnloop_trainer.language.base_model import Base
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.manifest.baseline_policy import fetch
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import digest
from learnloop_trainer.training_order import Order

FIELD = "spec.initialPolicy"
LONGEST = 2500
FIX = "name a learnloop policy of the same algorithm family, observations, actions and hidden layers, or leave it out"


def source(order: Order) -> tuple[str, str | None] | None:
    """URI and digest of the policy to begin from; None when training begins from random weights."""
    wanted = order.spec.initial_policy
    if wanted is None:
        return None
    if wanted.uri is not None:
        return wanted.uri, wanted.sha256
    if order.baseline_uri is None or order.baseline_uri.startswith("uniform://"):
        say("no learned policy serves yet: training begins from random weights")
        return None
    return order.baseline_uri, order.baseline_sha256


def begin_from(order: Order, learner: Learner, store: Store) -> str:
    """Give the learner the weights of the order's initial policy, where it has one.

    Returns its address, else why training begins from random weights; "" where nobody asked for another beginning.
    Raises ConfigError, with the fix, when the policy cannot be read or does not fit, unless it is not required.
    """
    wanted, found = order.spec.initial_policy, source(order)
    if wanted is None:
        return ""
    if found is None:
        return "random weights: no learned policy serves yet"
    try:
        _warmed(order, learner, store, *found)
    except ConfigError as error:
        if wanted.required:
            raise
        why = f"random weights: {error}"[:LONGEST]
        say(f"begins from {why}")
        return why
    return found[0]


def _warmed(order: Order, learner: Learner, store: Store, uri: str, wanted: str | None) -> None:
    body = fetch(uri, store, FIELD, FIX)
    if wanted and digest(body) != wanted:
        raise ConfigError(f"{FIELD}.sha256", wanted, f"is not the digest of {uri}: {digest(body)}", FIX)
    weights, facts = parts(body, uri)
    algorithm = facts.get(ALGORITHM, "")
    found = find(algorithm)
    if found is None or found.network != traits_of(order.spec.algorithm).network:
        raise ConfigError(FIELD, uri, f"was trained by {algorithm or 'nobody knows what'}, whose network differs", FIX)
    try:
        environment = learner.environment
        # Arrays of one shape may stand for other things: logits of two choices are no means of two numbers.
        continuous = environment.bounds is not None
        OnnxPolicy(body, environment.observations, environment.actions, continuous=continuous)
        taken = warm(learner, weights, traits_of(order.spec.algorithm))
    except ValueError as error:
        raise ConfigError(FIELD, uri, f"does not fit: {error}", FIX) from None
    say(f"begins from {uri}: {len(taken)} arrays of weights")


def parts(body: bytes, uri: str) -> tuple[Weights, dict[str, str]]:
    """The weights of an exported policy by name, and what it says of itself; raises ConfigError."""
    try:
        return read_graph(body)
    except ValueError as error:
        raise ConfigError(FIELD, uri, str(error), FIX) from None


MODEL_FIX = (
    "name a language model that was trained from the same base, weights, lora.rank and lora.alpha, or leave it out"
)


def begin_model_from(order: Order, network: LanguageNetwork, base: Base, store: Store) -> str:
    """Give the network what the order's initial policy learned, where it has one.

    Returns its address, else why training begins from the base model; "" where nobody asked for another beginning.
    Raises ConfigError, with the fix, when it cannot be read or does not fit, unless it is not required.
    """
    wanted = order.spec.initial_policy
    if wanted is None:
        return ""
    uri, sha256 = (wanted.uri, wanted.sha256) if wanted.uri else (order.baseline_uri, order.baseline_sha256)
    if not uri or uri.startswith((BASE_SCHEME, "uniform://")):
        return "the base model: nothing that was trained serves yet"
    try:
        _taken(network, base, _read(uri, sha256, store), uri)
    except ConfigError as error:
        if wanted.required:
            raise
        why = f"the base model: {error}"[:LONGEST]
        say(f"begins from {why}")
        return why
    say(f"begins from {uri}")
    return uri


def _read(uri: str, sha256: str | None, store: Store) -> Trained:
    body = fetch(uri, store, FIELD, MODEL_FIX)
    if sha256 and digest(body) != sha256:
        raise ConfigError(f"{FIELD}.sha256", sha256, f"is not the digest of {uri}: {digest(body)}", MODEL_FIX)
    try:
        return read(body)
    except ValueError as error:
        raise ConfigError(FIELD, uri, str(error), MODEL_FIX) from None


def _taken(network: LanguageNetwork, base: Base, found: Trained, uri: str) -> None:
    if found.facts[BASE] != base.sha256:
        raise ConfigError(FIELD, uri, f"was trained from base model {found.facts[BASE]}", MODEL_FIX)
    if found.adapter != (network.adapters is not None):
        raise ConfigError(FIELD, uri, "has whole weights, or an adapter, and the run learns the other one", MODEL_FIX)
    try:
        if network.adapters is not None:
            _same_scale(network.adapters, found)
            lora.load(network.adapters, found.arrays)
        else:
            _copied(network, found.arrays)
    except (ValueError, KeyError) as error:
        raise ConfigError(FIELD, uri, f"does not fit: {error}", MODEL_FIX) from None


def _same_scale(adapters: Mapping[str, Any], found: Trained) -> None:
    config = json.loads(found.facts[CONFIG])
    scale = float(config["lora_alpha"]) / int(config["r"])
    own = next(iter(adapters.values())).scaling[lora.ADAPTER]
    if scale != own:
        raise ValueError(f"its adapter counts {scale:g} times, this run's {own:g} times")


def _copied(network: LanguageNetwork, arrays: Mapping[str, Any]) -> None:
    own = [name for name in network.trainable if not name.startswith("value_head.")]
    for name in sorted(set(own) ^ set(arrays)):
        raise ValueError(f"{name} is {'missing' if name in own else 'of another model'}")
    for name in own:
        network.put(name, arrays[name])
