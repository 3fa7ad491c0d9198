"""How this server says no."""

from typing import Literal

from pydantic import ValidationError

Reason = Literal["ArmWithdrawn", "InvalidInput", "NotReady", "UnknownEpisode", "Unproven", "PolicyError", "TooLarge"]


class Refusal(Exception):
    """A request that is not served. `counted`: it is this arm's fault and belongs into its error metric."""

    def __init__(self, status: int, reason: Reason, message: str, *, counted: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.counted = counted


def invalid(error: ValidationError) -> Refusal:
    """400 that names the first field that is wrong, its value and what was expected."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "body"
    value = repr(first.get("input"))[:80]
    return Refusal(400, "InvalidInput", f"{field}: {value}: {first['msg']}")
