"""When a part's certificate is made anew, and why."""

from dataclasses import dataclass
from datetime import datetime

from learnloop_operator.core.certificates.rollover import due


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A part's certificate as it is in its Secret."""

    begins: datetime
    ends: datetime
    names: frozenset[str]
    signer_id: str
    fits: bool
    """Its key is beside it."""


def reason_to_renew(now: datetime, leaf: Leaf | None, names: frozenset[str], signer: str) -> str:
    """One sentence's end, or nothing: then it stays."""
    if leaf is None:
        return "there is none"
    if not leaf.fits:
        return "its key is not beside it"
    if now >= leaf.ends:
        return f"it ended at {leaf.ends:%Y-%m-%d %H:%M}"
    if leaf.names != names:
        return "it is for other names"
    if leaf.signer_id != signer:
        return "another authority signs now"
    if due(now, leaf.begins, leaf.ends):
        return "two thirds of its life are over"
    return ""
