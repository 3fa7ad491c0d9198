"""Refusals that callers see. Every one names the field, the value and what to do about it."""

from typing import Any

from learnloop_common.settings import ConfigurationError


class ApiError(Exception):
    """A refusal with an HTTP status.

    Args:
        status: HTTP status code.
        message: what is wrong and how to fix it, one sentence.
        field: dotted path of the offending input, when there is one.
        value: the offending value; shortened before it is sent.
        retry_after: seconds after which the same request may succeed.
    """

    def __init__(
        self, status: int, message: str, *, field: str | None = None, value: Any = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.value = value
        self.retry_after = retry_after


class Unavailable(ApiError):
    """Something this service stands on does not answer right now; nothing was written."""

    def __init__(self, what: str, *, retry_after: int = 2) -> None:
        super().__init__(503, f"{what} does not answer; nothing was written, send the request again", field=None)
        self.retry_after = retry_after


class NoRoom(Unavailable):
    """A stream is full of unread messages: it refuses new ones rather than lose accepted ones."""

    def __init__(self, message: str, *, retry_after: int = 5) -> None:
        super().__init__("NATS", retry_after=retry_after)
        self.message = message


class KeyMissing(Unavailable):
    """Stored data is sealed by a key that this process lacks."""

    def __init__(self, message: str) -> None:
        ApiError.__init__(self, 503, message, retry_after=30)


class Damaged(ApiError):
    """Stored data was changed by another program."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(500, f"{what} is damaged: {why}; restore it from a backup")


class Invalid(ApiError):
    """Input that no retry makes valid."""

    def __init__(self, message: str, *, field: str | None = None, value: Any = None) -> None:
        super().__init__(422, message, field=field, value=value)


class ApiServerRefused(ApiError):
    """A refusal of the API server, in its own words; 4xx only."""


class ConfigError(ConfigurationError):
    """A setting does not fit what it names; the message names the variable and the fix."""


class StoreAway(Exception):
    """A store other than PostgreSQL does not answer, or refuses. The message says which, and why."""


class StoreLost(StoreAway):
    """The store answers, but what it was given is not there: it must be filled again."""
