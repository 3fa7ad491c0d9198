"""What a proof belongs to: all that was asked of a run, as one digest."""

import json
import os

from learnloop_environments import own_code
from learnloop_trainer.store.run_store import digest
from learnloop_trainer.training_order import Order

MAY_CHANGE = {"workers", "suspend", "priority", "ttl_seconds_after_finished"}
"""Of a TrainingJob's spec while it runs, beside samplers.count."""
ELSEWHERE = {"pod", "queue", "backend"}
"""Where a run takes place; the operator keeps it from the order."""


def recipe_sha256(order: Order) -> str:
    """SHA-256 over the order and the code of the user's own environment.

    Equal for every attempt of a run, whatever its number of ranks and samplers; any other difference counts: of a
    hyperparameter, the filter, the rewards, the evaluation, the policy to beat. What a default stands for is part.
    """
    spec = order.spec.model_dump(mode="json", exclude=MAY_CHANGE | ELSEWHERE)
    spec["parameters"] = order.parameters.model_dump(mode="json")
    if spec["samplers"] is not None:
        del spec["samplers"]["count"]
    asked = order.model_dump(mode="json", exclude={"attempt", "spec"})
    facts = asked | {"spec": spec, "code": own_code.fingerprint(os.environ)}
    return digest(json.dumps(facts, sort_keys=True).encode())
