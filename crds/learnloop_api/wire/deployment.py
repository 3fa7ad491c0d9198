"""A model serves as stable: subject `agent.rl.model.deployed.v1.<namespace>.<model deployment>`."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.wire.base import Name, Timestamp, WireModel


class ModelDeployed(WireModel):
    """Which model now answers whoever is not on a canary, which one did before, and how it got there."""

    model_deployment: Name
    revision: str = Field(min_length=1, max_length=64, description="of the model that serves now, e.g. 3f9a2c81")
    uri: str = Field(min_length=1, max_length=2048, description="where its artifact lies")
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$", description="null: not checked")
    previous_revision: str | None = Field(default=None, max_length=64, description="stays warm beside it; null: none")
    routing_mode: Literal["service", "gateway"] = Field(default="service", description="who splits the traffic")
    canary_weights: list[Annotated[int, Field(ge=0, le=100)]] = Field(
        default_factory=list,
        max_length=32,
        description="the schedule it came by: percent of new episodes",
    )
    verdict: str = Field(default="", max_length=1024, description="the rollout's sentence about it, with its evidence")
    deployed_at: Timestamp = Field(description="when it became the stable one")
