"""Who is told what: the receivers that the installation names, and the folder with their secrets."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from learnloop_api.kinds.rollouts.gates import seconds_of
from learnloop_dataplane.errors import ConfigError

Event = Literal[
    "training.completed",
    "training.failed",
    "model.deployed",
    "model.rolled_back",
    "approval.waiting",
    "report.daily",
    "report.weekly",
]
EVENTS: tuple[Event, ...] = (
    "training.completed",
    "training.failed",
    "model.deployed",
    "model.rolled_back",
    "approval.waiting",
)
"""What a receiver that names nothing is told of: all but reports."""
MOST_RECEIVERS, MOST_SECRET_BYTES = 50, 8192
Address = Annotated[str, Field(min_length=3, max_length=254, pattern=r"^[^@\s,;<>]+@[^@\s,;<>]+$")]


class NotDelivered(Exception):
    """The receiver has not taken it. `final`: it never will. `after`: seconds that it asks to be left alone."""

    def __init__(self, why: str, *, final: bool = False, after: float = 0.0) -> None:
        super().__init__(why)
        self.final, self.after = final, after


class Mail(BaseModel):
    """How e-mail is handed over (RFC 5321)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    host: str = Field(min_length=1, max_length=253)
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: str = Field(default="", max_length=254)
    sender: Address
    to: list[Address] = Field(min_length=1, max_length=50)


class Receiver(BaseModel):
    """One that is told. `secret` names a file: of a webhook the key of its signatures, of Slack and Teams the address
    itself, of PagerDuty the routing key, of e-mail the password."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    name: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    type: Literal["webhook", "slack", "teams", "pagerduty", "email"]
    events: list[Event] = Field(default_factory=lambda: list(EVENTS), min_length=1)
    namespaces: list[str] = Field(default_factory=list, max_length=1000, description="empty: all")
    url: str | None = Field(default=None, max_length=2048, pattern=r"^https?://[^\s@]+$")
    secret: str | None = Field(default=None, max_length=253, description="name of a file in the folder of secrets")
    email: Mail | None = None
    private_addresses: bool = Field(
        default=False, alias="privateAddresses", description="it may be in the cluster, and speak plain HTTP or SMTP"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.type == "email") != (self.email is not None):
            raise ValueError("email goes with type email, and with no other: set both, or neither")
        if self.type in ("webhook", "pagerduty") and self.secret is None:
            raise ValueError(f"{self.type} needs a secret: name the file that has it")
        if self.type in ("webhook",) and self.url is None:
            raise ValueError("webhook needs a url")
        if self.type in ("slack", "teams") and (self.url is None) == (self.secret is None):
            raise ValueError(f"{self.type} needs its address: set url, or the secret that holds it")
        return self

    def wants(self, namespace: str, event: str) -> bool:
        """It is told of this."""
        return event in self.events and (not self.namespaces or namespace in self.namespaces)


class Escalation(BaseModel):
    """Who is told of an approval that nobody has answered after so long."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    after: str = Field(max_length=8, pattern=r"^[1-9][0-9]{0,5}[smh]$", description="e.g. 30m")
    to: list[str] = Field(min_length=1, max_length=MOST_RECEIVERS, description="names of receivers")
    namespaces: list[str] = Field(default_factory=list, max_length=1000, description="empty: all")


class _Setting(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    escalations: list[Escalation] = Field(default_factory=list, max_length=10)
    report_hour: int = Field(default=7, ge=0, le=23, alias="reportHour", description="UTC; weekly ones on Mondays")
    receivers: list[Receiver] = Field(default_factory=list, max_length=MOST_RECEIVERS)
    console: str = Field(default="", max_length=2048, description="address that links in messages begin with")


class Receivers:
    """The receivers of one setting, and their secrets in one folder; secrets are read anew for each message.

    Args:
        setting: JSON `{"receivers": […], "console": "https://…"}`; None: nobody is told.
        secrets: the folder.

    Raises:
        ConfigError: names the receiver, the field and the fix.
    """

    def __init__(self, setting: str | None, secrets: str) -> None:
        self._secrets = Path(secrets)
        try:
            found = _Setting.model_validate_json(setting) if setting else _Setting()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"LEARNLOOP_NOTIFICATIONS: {where}: {first['msg']}") from None
        self.console = found.console.rstrip("/")
        self.all = {receiver.name: receiver for receiver in found.receivers}
        if len(self.all) != len(found.receivers):
            raise ConfigError("LEARNLOOP_NOTIFICATIONS: two receivers have the same name: rename one")
        self._escalations, self.report_hour = found.escalations, found.report_hour
        unknown = [name for rule in found.escalations for name in rule.to if name not in self.all]
        if unknown:
            known = ", ".join(self.all) or "none"
            raise ConfigError(f"LEARNLOOP_NOTIFICATIONS: escalations.to: {unknown[0]!r} is no receiver: {known} are")

    def of(self, namespace: str, event: str) -> list[str]:
        """Names of those that are told."""
        return [name for name, receiver in self.all.items() if receiver.wants(namespace, event)]

    def escalations(self, namespace: str) -> list[tuple[int, list[str]]]:
        """Seconds without an answer, and who is told then."""
        rules = [rule for rule in self._escalations if not rule.namespaces or namespace in rule.namespaces]
        return [(int(seconds_of(rule.after)), rule.to) for rule in rules]

    def secret(self, receiver: Receiver) -> str:
        """The content of its secret's file.

        Raises:
            OSError: it cannot be read.
        """
        if receiver.secret is None:
            return ""
        path = self._secrets / Path(receiver.secret).name
        with path.open("rb") as file:
            return file.read(MOST_SECRET_BYTES).decode().strip()
