"""The weights that a run begins from."""

from collections.abc import Callable, Mapping
from typing import Any

from learnloop_api.kinds.language_model import BASE_SCHEME
from learnloop_common.acting.policy import ALGORITHM
from learnloop_environments.errors import ConfigError
from learnloop_trainer import algorithms, baseline_policy, export, progress_reporter, training_order
from learnloop_trainer.algorithms.weight_transfer import warm
from learnloop_trainer.export import language_model_files, other_formats
from learnloop_trainer.language import base_model, lora
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.store import Store

FIELD = "spec.initialPolicy"
LONGEST = 2500
FIX = "name a learnloop policy of the same algorithm family, observations, actions and hidden layers, or leave it out"


def source(order: training_order.Order) -> tuple[str, str | None] | None:
    """URI and digest of the policy or model to begin from; None where nothing that was trained serves yet."""
    wanted = order.spec.initial_policy
    if wanted is None:
        return None
    if wanted.uri is not None:
        return wanted.uri, wanted.sha256
    if not order.baseline_uri or order.baseline_uri.startswith(("uniform://", BASE_SCHEME)):
        return None
    return order.baseline_uri, order.baseline_sha256


def begin_from(order: training_order.Order, learner: algorithms.Learner, store: Store) -> str:
    """Give the learner the weights of the order's initial policy, where it has one.

    Returns its address, else why training begins from random weights; "" where no other beginning was asked for.
    Raises ConfigError, with the fix, when the policy cannot be read or does not fit, unless it is not required.
    """
    return _begun(
        order, "random weights: no learned policy", lambda uri, sha256: _warm(order, learner, store, uri, sha256)
    )


def begin_model_from(order: training_order.Order, network: LanguageNetwork, base: base_model.Base, store: Store) -> str:
    """The same for a language model, which otherwise begins from the base model."""
    return _begun(
        order, "the base model: nothing that was trained", lambda uri, sha256: _take(network, base, store, uri, sha256)
    )


def _begun(order: training_order.Order, otherwise: str, take: Callable[[str, str | None], None]) -> str:
    wanted, origin = order.spec.initial_policy, source(order)
    if wanted is None:
        return ""
    if origin is None:
        progress_reporter.say(f"begins from {otherwise} serves yet")
        return f"{otherwise} serves yet"
    try:
        take(*origin)
    except ConfigError as error:
        if wanted.required:
            raise
        why = f"{otherwise.partition(':')[0]}: {error}"[:LONGEST]
        progress_reporter.say(f"begins from {why}")
        return why
    progress_reporter.say(f"begins from {origin[0]}")
    return origin[0]


def _warm(order: training_order.Order, learner: algorithms.Learner, store: Store, uri: str, sha256: str | None) -> None:
    body = baseline_policy.fetch(uri, store, FIELD, FIX, sha256)
    try:
        weights, facts = other_formats.read(body)
    except ValueError as error:
        raise ConfigError(FIELD, uri, str(error), FIX) from None
    algorithm = facts.get(ALGORITHM, "")
    trained_by = algorithms.find(algorithm)
    if trained_by is None or trained_by.network != algorithms.traits_of(order.spec.algorithm).network:
        raise ConfigError(
            FIELD, uri, f"was trained by {algorithm or 'an unknown algorithm'}, whose network differs", FIX
        )
    try:
        environment = learner.environment
        # Arrays of one shape may stand for other things: logits of two choices are not means of two numbers.
        continuous = environment.bounds is not None
        export.OnnxPolicy(body, environment.observations, environment.actions, continuous=continuous)
        warm(learner, weights, algorithms.traits_of(order.spec.algorithm))
    except ValueError as error:
        raise ConfigError(FIELD, uri, f"does not fit: {error}", FIX) from None


MODEL_FIX = (
    "name a language model that was trained from the same base, weights, lora.rank and lora.alpha, or leave it out"
)


def _take(network: LanguageNetwork, base: base_model.Base, store: Store, uri: str, sha256: str | None) -> None:
    trained = baseline_policy.read_model(
        baseline_policy.fetch(uri, store, FIELD, MODEL_FIX, sha256), FIELD, uri, MODEL_FIX
    )
    if trained.facts[language_model_files.BASE] != base.sha256:
        raise ConfigError(
            FIELD, uri, f"was trained from base model {trained.facts[language_model_files.BASE]}", MODEL_FIX
        )
    if trained.adapter != (network.adapters is not None):
        raise ConfigError(FIELD, uri, "has whole weights, or an adapter, and the run learns the other one", MODEL_FIX)
    try:
        if network.adapters is not None:
            scale, own = (
                baseline_policy.scale_of(trained, FIELD, uri),
                next(iter(network.adapters.values())).scaling[lora.ADAPTER],
            )
            if scale != own:
                raise ValueError(f"its adapter counts {scale:g} times, this run's {own:g} times")
            lora.load(network.adapters, trained.arrays)
        else:
            _copied(network, trained.arrays)
    except (ValueError, KeyError) as error:
        raise ConfigError(FIELD, uri, f"does not fit: {error}", MODEL_FIX) from None


def _copied(network: LanguageNetwork, arrays: Mapping[str, Any]) -> None:
    own = [name for name in network.trainable if not name.startswith("value_head.")]
    for name in sorted(set(own) ^ set(arrays)):
        raise ValueError(f"{name} is {'missing' if name in own else 'of another model'}")
    for name in own:
        network.put(name, arrays[name])
