"""Training that begins from an exported policy: `spec.initialPolicy`."""

from learnloop_common.acting.policy import ALGORITHM
from learnloop_environments.errors import ConfigError
from learnloop_trainer.algorithms import Learner, find, traits_of
from learnloop_trainer.algorithms.weight_transfer import Weights, warm
from learnloop_trainer.export import OnnxPolicy
from learnloop_trainer.export.weights import read
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
        return read(body)
    except ValueError as error:
        raise ConfigError(FIELD, uri, str(error), FIX) from None
