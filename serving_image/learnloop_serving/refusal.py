"""How this server says no."""

from typing import Literal

from pydantic import ValidationError

Reason = Literal[
    "ArmWithdrawn",
    "Forbidden",
    "InvalidInput",
    "NotReady",
    "PolicyError",
    "TooLarge",
    "Unauthorized",
    "UnknownEpisode",
    "Unproven",
]


class Refusal(Exception):
    """A request that is not served. None of them is the arm's fault, and `by_caller` says which are the caller's."""

    def __init__(self, status: int, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def by_caller(self) -> bool:
        """What was sent is no request that any policy could answer: it says nothing of this one."""
        return self.reason in ("InvalidInput", "TooLarge")


def invalid(error: ValidationError) -> Refusal:
    """400 that names the first field that is wrong, its value and what was expected."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "body"
    value = repr(first.get("input"))[:80]
    return Refusal(400, "InvalidInput", f"{field}: {value}: {first['msg']}")
