"""What the data plane has counted of the revisions of a ModelDeployment: GET /api/v1/models/{deployment}/outcomes."""

from pydantic import Field

from learnloop_api.wire.base import WireModel
from learnloop_api.wire.trajectory import MAX_REVISION

MOST_REVISIONS = 16
LONGEST_SECONDS = 31_536_000


class RevisionOutcomes(WireModel, extra="ignore"):
    """Episodes that one revision played and that arrived in the asked time. Withdrawn ones count for nothing."""

    revision: str = Field(max_length=MAX_REVISION)
    episodes: int = Field(ge=0, description="that arrived")
    rewarded: int = Field(ge=0, description="of these, those that have a reward")
    reward_sum: float = Field(
        description="of their raw rewards; one that broke a safety constraint counts with no more than its reward"
    )
    rated: int = Field(ge=0, description="of these, those that at least one person rated")
    feedback_sum: float = Field(description="of the mean opinion about each rated episode, -1 to 1")


class DeploymentOutcomes(WireModel, extra="ignore"):
    """Each asked revision, also those that nothing arrived of."""

    seconds: int = Field(ge=1, le=LONGEST_SECONDS, description="counted are episodes that arrived in so many seconds")
    revisions: list[RevisionOutcomes] = Field(max_length=MOST_REVISIONS)
