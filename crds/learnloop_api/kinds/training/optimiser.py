"""What all learners share: how the step size changes over a run."""

from typing import Literal

from pydantic import Field

from learnloop_api.kinds.base import Resource


class Optimised(Resource):
    """Hyperparameters of an algorithm that takes gradient steps."""

    learning_rate_schedule: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="How the step size falls to 0 over totalSteps; constant: it does not."
    )
    warmup: float = Field(
        default=0.0, ge=0, lt=1, description="Share of totalSteps over which the step size first rises from 0."
    )
