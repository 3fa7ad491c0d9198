"""Routing: the table of arms, the episodes API, and copies for an arm in shadow."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

from pydantic import Field, model_validator

from learnloop_api.wire.base import Identifier, LogProb, Name, Real, Timestamp, WireModel

ROUTING_KEY = "routing.json"
DEAD_MAN_SECONDS = 600
"""From the moment that an operator writes an `expires_at` to that moment itself, by one clock."""
MOST_RETURN = 1e12
"""Of either sign. 2^53 episodes of this return add up to 1e28: no sum of returns overflows, or drowns a million."""
# Of overrides, here and in the kinds: an agent's process reads this module and no kind, which take time to import.
Instead = Literal["fixed", "fallback", "stop"]
"""Action in place of the policy's."""
MOST_OVERRIDES, LONGEST_ANSWER, LONGEST_REASON, MOST_NUMBERS = 64, 512, 200, 64


def routing_config_map(model_deployment: str) -> str:
    """Name of the ConfigMap that holds the routing table."""
    return f"{model_deployment}-routing"


def episodes_secret(model_deployment: str) -> str:
    """Name of the Secret with the key, `names.EPISODE_KEY`, by which its policy servers know their episodes."""
    return f"{model_deployment}-episodes"


def arm_name(model_deployment: str, revision: str) -> str:
    """Name shared by an arm's Deployment and Service."""
    return f"{model_deployment}-{revision}"


class Arm(WireModel):
    """One policy revision that may receive episodes."""

    revision: str = Field(pattern=r"^[0-9a-f]{8}$")
    role: Literal["stable", "canary"]
    weight: int = Field(ge=0, le=100, description="percent of new episodes; in gateway mode the HTTPRoute has them")
    url: str = Field(max_length=512, description="base URL of the arm's own Service")
    share: float | None = Field(
        default=None, gt=0, le=1, description="the part of the limits that one of the arm's servers may give"
    )


class Limits(WireModel):
    """Decisions in a second, of all servers together; null: without bound."""

    per_second: float | None = Field(default=None, gt=0, description="of all agents")
    per_agent_per_second: float | None = Field(default=None, gt=0, description="of each agent")


def agent_tag(agent: str | None) -> str:
    """Eight hexadecimal digits that name the agent in an episode's id; those of "" name no agent."""
    return sha256((agent or "").encode()).hexdigest()[:8]


class Override(WireModel):
    """A person's decision in place of the policy's. The episodes that it touches are not evidence."""

    agent: Name | None = Field(default=None, description="the agent it is about; null: all")
    instead: Instead
    choice: int | None = Field(default=None, ge=-(2**31), le=2**31 - 1, description="fixed: the action, one of several")
    numbers: list[Real] | None = Field(default=None, max_length=MOST_NUMBERS, description="fixed: the action's numbers")
    answer: str | None = Field(default=None, max_length=LONGEST_ANSWER, description="fixed: a language model's words")
    since: Timestamp
    until: Timestamp = Field(description="when it ends by itself, by the API server's clock")
    over: bool = Field(default=False, description="not in force any more; kept for what it has touched")
    reason: str = Field(max_length=LONGEST_REASON)
    by: str | None = Field(default=None, max_length=256, description="who ordered it")

    def in_force(self, now: datetime) -> bool:
        """Must a server obey now, by the API server's clock? `since` does not matter."""
        return not self.over and now < self.until

    def sentence(self) -> str:
        """Author, end and reason, in words."""
        until = self.until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"by {self.by or 'an unnamed person'} until {until}: {self.reason}"


class Mirror(WireModel):
    """Copies of stable's requests go to `revision`, whose answers are discarded."""

    revision: str = Field(pattern=r"^[0-9a-f]{8}$")
    percent: int = Field(default=100, ge=1, le=100, description="share of stable's episodes")
    max_distance: float = Field(default=0.05, ge=0, description="continuous actions this near are the same")


class RoutingTable(WireModel):
    """Arms that get new episodes. A revision that is not listed is withdrawn: its servers refuse to act."""

    model_deployment: Name
    mode: Literal["service", "gateway"] = "service"
    generation: int = Field(ge=0, description="grows with every write")
    arms: list[Arm] = Field(max_length=8)
    expires_at: Timestamp | None = Field(
        default=None,
        description="after this moment all new episodes go to stable, who also answers what knows no episodes, and "
        "nothing is mirrored: the dead-man switch",
    )
    mirror: Mirror | None = Field(default=None, description="the arm in shadow, if there is one")
    limits: Limits | None = Field(default=None, description="how many decisions may be given; null: without bound")
    overrides: list[Override] | None = Field(
        default=None, max_length=MOST_OVERRIDES, description="where people decide in the policy's place, or did lately"
    )

    @model_validator(mode="after")
    def _weights_add_up(self) -> "RoutingTable":
        total = sum(arm.weight for arm in self.arms)
        nobody_served = not total and all(arm.role == "canary" for arm in self.arms)  # the first model, at its gates
        if not nobody_served and total != 100:
            raise ValueError(f"arms: weights add up to {total}, must be 100")
        if len({arm.revision for arm in self.arms}) != len(self.arms):
            raise ValueError("arms: a revision is listed twice")
        if self.mirror and not any(arm.revision == self.mirror.revision and not arm.weight for arm in self.arms):
            raise ValueError(f"mirror: {self.mirror.revision} is not an arm of weight 0")
        return self

    def to_json(self) -> str:
        """The table as it is stored. What says nothing is left out, so that older servers, which refuse fields they
        do not know, read every table that needs none of the newer ones."""
        return self.model_dump_json(exclude_none=True)

    def expired(self, now: datetime) -> bool:
        """Has the operator's dead-man switch gone off?"""
        return self.expires_at is not None and now >= self.expires_at

    def mirrored(self, now: datetime) -> Arm | None:
        """The arm that gets copies of stable's requests now."""
        mirror = self.mirror
        if mirror is None or self.expired(now):
            return None
        return next(arm for arm in self.arms if arm.revision == mirror.revision)


class OpenEpisode(WireModel):
    """POST /v1/episodes"""

    agent: Name | None = None
    task: str = Field(default="", max_length=1024)
    stable_only: bool = Field(default=False, description="set when reopening after an arm was withdrawn")


class OpenedEpisode(WireModel):
    """The answer: which arm owns this episode. All following requests go to `url` (service mode) or carry
    `x-learnloop-arm: <revision>` (gateway mode). Its id is opaque, and only the ModelDeployment's servers make one."""

    episode_id: Identifier
    model_deployment: Name
    revision: str
    role: Literal["stable", "canary"]
    mode: Literal["service", "gateway"]
    url: str


MOST_MEMORY = 87_384
"""Characters: 16,384 numbers in base64."""


class ActRequest(WireModel):
    """POST /v1/episodes/{episode_id}/act"""

    observation: list[float] = Field(min_length=1, max_length=65_536)
    explore: bool = Field(
        default=True, description="act as the policy's file says it behaves; false: take the greedy action"
    )
    memory: str = Field(
        default="",
        max_length=MOST_MEMORY,
        description="that of the episode's last answer; empty at its first observation",
    )


class ActResponse(WireModel):
    """The policy's decision for one observation."""

    action: int | list[float]
    log_prob: LogProb = Field(
        description="natural log of the action's probability, 0 where nothing was drawn; where numbers were drawn, of "
        "their density, which may be above 0"
    )
    exploration: bool = Field(description="the action was drawn from a distribution")
    revision: str
    q_value: Real | None = Field(
        default=None, description="of an epsilon-greedy policy: what it thinks the action worth"
    )
    memory: str | None = Field(
        default=None,
        max_length=MOST_MEMORY,
        description="of a policy that remembers: opaque, to be sent with the episode's next observation",
    )
    intervened: bool | None = Field(
        default=None, description="a safety shield replaced the action that the policy wanted; null: it has no shield"
    )
    override: Literal["fixed"] | None = Field(
        default=None, description="true if a person fixed this action, so that it says nothing of the policy"
    )


class EndEpisode(WireModel):
    """POST /v1/episodes/{episode_id}/end"""

    status: Literal["completed", "error", "withdrawn"]
    episode_return: float = Field(
        ge=-MOST_RETURN, le=MOST_RETURN, allow_inf_nan=False, description="undiscounted; bounded, for arms sum it up"
    )
    length: int = Field(ge=0)
    success: bool | None = None


Reason = Literal[
    "ArmWithdrawn",
    "FallbackOrdered",
    "Forbidden",
    "InvalidInput",
    "NotReady",
    "PolicyError",
    "Stopped",
    "Throttled",
    "TooLarge",
    "Unauthorized",
    "UnknownEpisode",
    "Unproven",
]


class ServingError(WireModel):
    """Body of every refusal of the policy server. Status 410 with reason `ArmWithdrawn` means: reopen on stable."""

    reason: Reason
    message: str
    retry_after: int | None = Field(default=None, ge=0, description="429: seconds until it is worth asking again")


MAX_ITEMS = 64


class ShadowDecision(WireModel):
    """One observation, and stable's best action for it."""

    observation: list[float] = Field(min_length=1, max_length=65_536)
    greedy: int | list[float] = Field(description="the action stable thinks best")


class ShadowBatch(WireModel):
    """Copies of stable's decisions."""

    revision: str = Field(pattern=r"^[0-9a-f]{8}$", description="the arm these copies are for")
    decisions: list[ShadowDecision] = Field(default_factory=list, max_length=MAX_ITEMS)
