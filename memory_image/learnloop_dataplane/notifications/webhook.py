"""Settings of the webhook that gets notifications."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from learnloop_api.kinds.rollouts.gates import seconds_of
from learnloop_dataplane.errors import ConfigError

SECONDS = 10.0
"""For one message, with its answer."""
Event = Literal[
    "training.completed",
    "training.failed",
    "model.deployed",
    "model.rolled_back",
    "approval.waiting",
    "report.daily",
]
EVENTS: tuple[Event, ...] = (
    "training.completed",
    "training.failed",
    "model.deployed",
    "model.rolled_back",
    "approval.waiting",
)


class NotDelivered(Exception):
    """The receiver did not accept the message."""


class Webhook(BaseModel):
    """The receiver and the events that it gets."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    url: str = Field(max_length=2048, pattern=r"^https?://[^\s@]+$")
    events: list[Event] = Field(default_factory=lambda: list(EVENTS), min_length=1)
    escalate_after: str = Field(default="", max_length=8, pattern=r"^([1-9][0-9]{0,5}[smh])?$", alias="escalateAfter")
    report_hour: int = Field(default=7, ge=0, le=23, alias="reportHour", description="UTC")

    @classmethod
    def parse(cls, setting: str | None) -> Self | None:
        """Reads LEARNLOOP_NOTIFICATIONS.

        Raises:
            ConfigError: names the field and the fix.
        """
        if not setting:
            return None
        try:
            return cls.model_validate_json(setting)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"LEARNLOOP_NOTIFICATIONS: {where}: {first['msg']}") from None

    @property
    def escalation(self) -> float | None:
        """Seconds without an answer until an approval is sent again."""
        return float(seconds_of(self.escalate_after)) if self.escalate_after else None
