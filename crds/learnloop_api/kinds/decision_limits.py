"""How many decisions a ModelDeployment gives in a second, all its pods together."""

from typing import ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Resource
from learnloop_api.kinds.cel_rules import Rule

MOST = 1_000_000.0


class DecisionLimits(Resource):
    """Bounds on answered decisions. Who asks for more gets 429 and is told when to ask again."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.perSecond) || has(self.perAgentPerSecond)",
            "a limit without a number limits nothing: set perSecond or perAgentPerSecond, or remove decisionLimits",
        ),
    )

    per_second: float | None = Field(
        default=None, gt=0, le=MOST, description="Of all agents together; left out: without bound."
    )
    per_agent_per_second: float | None = Field(
        default=None,
        gt=0,
        le=MOST,
        description="Of each agent, as episodes name it; left out: without bound. Those that name none count as one.",
    )
