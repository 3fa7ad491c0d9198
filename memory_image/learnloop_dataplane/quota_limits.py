"""What a namespace may have of the shared data plane, as the platform decides."""

from pydantic import BaseModel, ConfigDict, Field

from learnloop_api.wire.base import MOST


class QuotaLimits(BaseModel):
    """Limits of one namespace; a field that is left out, or null, is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    artifact_bytes: int | None = Field(
        default=None, ge=1, le=MOST, alias="artifactBytes", description="of artifacts and checkpoints"
    )
    memories: int | None = Field(default=None, ge=1, le=MOST, description="of all agents, the forgotten not counted")
    episodes_per_second: float | None = Field(
        default=None, gt=0, le=1e6, alias="episodesPerSecond", description="at each replica, ten seconds' worth at once"
    )


class Quotas(BaseModel):
    """The limits of all namespaces: what one says itself wins over the default, field by field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: QuotaLimits = QuotaLimits()
    namespaces: dict[str, QuotaLimits] = Field(default_factory=dict, max_length=10_000)

    def of(self, namespace: str) -> QuotaLimits:
        """The limits in force there."""
        own = self.namespaces.get(namespace)
        return self.default if own is None else self.default.model_copy(update=own.model_dump(exclude_unset=True))
