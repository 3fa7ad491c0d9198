"""A language model's training that begins from what was trained before: `spec.initialPolicy`."""

import json
from collections.abc import Mapping
from typing import Any

from learnloop_api.kinds.language_model import BASE_SCHEME
from learnloop_environments.errors import ConfigError
from learnloop_trainer.export.language import BASE, CONFIG, Trained, read
from learnloop_trainer.language import lora
from learnloop_trainer.language.base_model import Base
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.manifest.baseline_policy import fetch
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import digest
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.initial_policy import FIELD, LONGEST

FIX = "name a language model that was trained from the same base, weights, lora.rank and lora.alpha, or leave it out"


def begin_from(order: Order, network: LanguageNetwork, base: Base, store: Store) -> str:
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
    body = fetch(uri, store, FIELD, FIX)
    if sha256 and digest(body) != sha256:
        raise ConfigError(f"{FIELD}.sha256", sha256, f"is not the digest of {uri}: {digest(body)}", FIX)
    try:
        return read(body)
    except ValueError as error:
        raise ConfigError(FIELD, uri, str(error), FIX) from None


def _taken(network: LanguageNetwork, base: Base, found: Trained, uri: str) -> None:
    if found.facts[BASE] != base.sha256:
        raise ConfigError(FIELD, uri, f"was trained from base model {found.facts[BASE]}", FIX)
    if found.adapter != (network.adapters is not None):
        raise ConfigError(FIELD, uri, "has whole weights, or an adapter, and the run learns the other one", FIX)
    try:
        if network.adapters is not None:
            _same_scale(network.adapters, found)
            lora.load(network.adapters, found.arrays)
        else:
            _copied(network, found.arrays)
    except (ValueError, KeyError) as error:
        raise ConfigError(FIELD, uri, f"does not fit: {error}", FIX) from None


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
