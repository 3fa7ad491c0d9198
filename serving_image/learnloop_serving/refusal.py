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

    @property
    def by_person(self) -> bool:
        """A person has ordered it: it says nothing of anybody else."""
        return self.reason in ("FallbackOrdered", "Stopped")


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
