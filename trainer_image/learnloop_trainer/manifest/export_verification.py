"""Is what was exported what was trained? On observations an agent recorded, topped up with others to a fixed number."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from learnloop_api.wire.training import Parity
from learnloop_environments.base import Bounds, Observations
from learnloop_environments.randomness import Purpose, generator
from learnloop_trainer.errors import ExportError
from learnloop_trainer.evaluation import collect
from learnloop_trainer.evaluation.held_out_episodes import held_out
from learnloop_trainer.export import Exported, OnnxPolicy, TorchPolicy, check, convert
from learnloop_trainer.export.parity import Logits
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.store import Store
from learnloop_trainer.training_order import Order

PARITY_OBSERVATIONS = 10_000
RECORDED_OBSERVATIONS = 10_000
Verified = tuple[Literal["pt2", "torchscript"], bytes, Parity]


def recorded(order: Order, store: Store, width: int) -> Observations:
    """What the agent really saw, [m, width]; observations of another width are left out with a note."""
    agent = order.spec.data.learning_agent_ref
    rows = store.observations(agent.name, RECORDED_OBSERVATIONS) if agent else []
    fitting = [row for row in rows if len(row) == width]
    if len(fitting) < len(rows):
        say(f"{len(rows) - len(fitting)} recorded observations do not have {width} numbers and are left out")
    array = np.asarray(fitting, dtype=np.float32).reshape(-1, width)
    return array[np.isfinite(array).all(axis=1)]


def witnesses(
    order: Order, store: Store, met: Observations, actions: int, bounds: Bounds | None = None
) -> tuple[Observations, int]:
    """At least PARITY_OBSERVATIONS to verify the export with, and how many of them an agent recorded.

    Recorded ones come first, then those that evaluation met, then those of random play; where nobody plays, others near
    those that were logged.
    """
    real = recorded(order, store, met.shape[1])
    missing = max(0, PARITY_OBSERVATIONS - len(real))
    observations = np.concatenate((real, met[:missing]))
    if len(observations) < PARITY_OBSERVATIONS:
        more = PARITY_OBSERVATIONS - len(observations)
        played = order.spec.data.environment is not None
        extra = collect(held_out(order), actions, order.spec.seed, more, bounds) if played else near(met, more, order)
        observations = np.concatenate((observations, extra))
    return observations, len(real)


def near(met: Observations, count: int, order: Order) -> Observations:
    """So many observations near those that were logged, where nobody plays: each moved by a tenth of a deviation."""
    random = generator(Purpose.NOISE, order.spec.seed, 1)
    picked = met[random.integers(0, len(met), count)]
    return np.asarray(picked + 0.1 * met.std(axis=0) * random.standard_normal(picked.shape), dtype=np.float32)


def verify(network: Callable[[Observations], Logits], policy: Exported, seen: Observations, real: int) -> Parity:
    """Parity of an exported policy with the trained network; raises ExportError when it fails."""
    parity = check(network, policy, seen, real)
    if not parity.passed:
        raise ExportError(
            f"the exported graph differs from the trained network: actions agree on {parity.action_agreement:.2%} of "
            f"{parity.observations} observations, outputs by up to {parity.max_abs_difference:.3g}; nothing was stored"
        )
    return parity


def more_formats(
    order: Order,
    body: bytes,
    policy: OnnxPolicy,
    network: Callable[[Observations], Logits],
    seen: Observations,
    real: int,
) -> list[Verified]:
    """The policy in each further format the order asks for, verified; raises ExportError where one fails."""
    found: list[Verified] = []
    for kind in order.spec.export.formats:
        converted = convert(body, kind)
        loaded = TorchPolicy(converted, kind, continuous=policy.continuous, hybrid=policy.hybrid)
        parity = verify(network, loaded, seen, real)
        say(f"{kind}: outputs differ by up to {parity.max_abs_difference:.3g} on {parity.observations} observations")
        found.append((kind, converted, parity))
    return found
