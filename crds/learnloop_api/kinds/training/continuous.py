"""Continuous learning: updates by a rank that stays."""

from pydantic import Field

from learnloop_api.kinds.base import Resource
from learnloop_api.kinds.training.algorithms import LANGUAGE
from learnloop_api.kinds.training.recipe import FOREIGN


class Continuous(Resource):
    """The rank stays after the run. Each further trigger is an update: a revision with a proof of its own."""

    steps: int = Field(ge=1, le=10_000_000_000, description="Environment steps of each update.")
    max_kl: float = Field(
        default=0.1,
        gt=0,
        le=100,
        description="Mean KL divergence of an update from the policy that serves, in nats, at most. Policies that do "
        "not draw their actions have none.",
    )


class ContinuousRun(Continuous):
    """Updates of one run."""

    update: int = Field(default=0, ge=0, le=1_000_000, description="Newest update that is wanted; 0: none yet.")


NOT_CONTINUOUS = (
    f"self.workers > 0 || has(self.study) || has(self.deadlineSeconds) || {FOREIGN}"
    f" || self.algorithm in {list(LANGUAGE)}"
)
"""CEL: no rank of such a run can stay."""
CONTINUOUS_FIX = (
    "one rank of engine own stays, for a policy of numbers: set workers to 0, remove study and deadlineSeconds"
)
