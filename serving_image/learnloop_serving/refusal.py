"""How this server says no."""

from typing import Literal

from pydantic import ValidationError

from learnloop_api.wire.routing import Override

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

Apart = Literal["invalid", "overridden", "throttled"]


class Refusal(Exception):
    """A request that is not served. None of them is the arm's fault, and `apart` says which are nobody's evidence.

    Attributes:
        retry_after: seconds until it is worth asking again; 0: nobody knows.
    """

    def __init__(self, status: int, reason: Reason, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def by_caller(self) -> bool:
        """What was sent is no request that any policy could answer: it says nothing of this one."""
        return self.reason in ("InvalidInput", "TooLarge")

    @property
    def apart(self) -> Apart | None:
        """Why this is no evidence of any arm; None where it is."""
        if self.by_caller:
            return "invalid"
        if self.reason in ("FallbackOrdered", "Stopped"):
            return "overridden"
        return "throttled" if self.reason == "Throttled" else None


def ordered(override: Override) -> Refusal:
    """What a caller is told where a person keeps the policy from answering."""
    if override.instead == "fallback":
        return Refusal(409, "FallbackOrdered", f"your own fallback decides, as ordered {override.told()}")
    return Refusal(403, "Stopped", f"nobody gets an answer here, as ordered {override.told()}")


def invalid(error: ValidationError) -> Refusal:
    """400 that names the first field that is wrong, its value and what was expected."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "body"
    value = repr(first.get("input"))[:80]
    return Refusal(400, "InvalidInput", f"{field}: {value}: {first['msg']}")
