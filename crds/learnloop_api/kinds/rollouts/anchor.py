"""What no chain of promotions may fall below: a figure that stays where it is while stable moves on."""

from typing import Literal

from pydantic import Field

from learnloop_api.kinds.base import ObjectName, Resource, Revision, Time

ANCHORED_TYPES = ("success", "return", "errors", "reward", "feedback")
"""Metrics whose own number says which way is worse, and that are counted by episodes."""


class AnchoredMetric(Resource):
    """One metric's most that may be lost, over all promotions together."""

    name: ObjectName = Field(
        description="One of analysis.metrics, of type success, return, errors, reward or feedback, that is no dry run."
    )
    max_drop: float = Field(
        gt=0, description="How much worse than the anchor a model may be, in the metric's own unit: 0.05 of success."
    )
    value: float | None = Field(
        default=None,
        description=(
            "The anchor's figure. Left out, the operator takes that of the first stable arm that it sees with "
            "minEpisodes, and keeps it in status.anchor, whatever is promoted later."
        ),
    )


class Anchor(Resource):
    """A comparison that does not move: each model may be a little worse than the one before, all of them may not."""

    min_episodes: int = Field(
        default=100,
        ge=1,
        le=1_000_000,
        description="Episodes of stable in a rollout before its figure becomes the anchor; until then steps wait.",
    )
    metrics: list[AnchoredMetric] = Field(
        min_length=1,
        max_length=8,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="Beside their own bounds, these are compared with the anchor at every look, in the guard too.",
    )


class AnchorFigure(Resource):
    """What stood at the beginning. It goes when analysis.anchor no longer asks for it."""

    name: ObjectName = Field(description="The metric.")
    type: Literal["success", "return", "errors", "reward", "feedback"] = Field(
        description="What it measured; a metric that measures something else now gets a new anchor."
    )
    revision: Revision = Field(description="Whose figure it is.")
    value: float = Field(description="The figure, in the metric's own unit.")
    episodes: int = Field(ge=1, description="Episodes behind it.")
    at: Time = Field(description="When it was taken.")
