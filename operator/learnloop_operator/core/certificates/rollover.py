"""Which authorities there are, which of them signs, and when the next one is made.

An authority is announced first: it is in everybody's bundle, and signs nothing. It signs once nobody can be left who
has not read of it. The one before stays in the bundles until what it signed last has been renewed. So at no time does a
server show a certificate that a client with a bundle up to `announcement` old refuses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

RENEW_AT = 2 / 3
"""Of its life. The last third is for whoever could not renew in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """One that can sign, as its certificate says."""

    key_id: str
    begins: datetime
    ends: datetime
    announced: datetime
    """Since when it is in the bundles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take."""

    announcement: timedelta
    """From an authority's first bundle to its first signature: longer than a client takes to read its bundle again."""
    longest_leaf: timedelta
    """The longest life of what authorities sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollover:
    """What is to be done about the authorities now."""

    make: bool
    """A new one, which joins the bundle at once."""
    kept: tuple[str, ...]
    """Key ids of those that stay in the bundle, the newest first."""
    signer: str
    """Key id of the one that signs; empty: the one that is made now, for there is no other."""


def roll_over(now: datetime, authorities: Sequence[Authority], pace: Pace, *, asked: bool = False) -> Rollover:
    """The state after this is what the next look begins with.

    Args:
        asked: a person wants a new authority whatever the age of the newest.
    """
    living = sorted((one for one in authorities if one.ends > now), key=lambda one: one.announced, reverse=True)
    if not living:
        return Rollover(make=True, kept=(), signer="")
    signer = _signer(now, living, pace)
    kept = [one for one in living if one.announced >= signer.announced or not _over(now, signer, pace)]
    make = asked or due(now, living[0].begins, living[0].ends)
    return Rollover(make=make, kept=tuple(one.key_id for one in kept), signer=signer.key_id)


def due(now: datetime, begins: datetime, ends: datetime) -> bool:
    """Two thirds of its life are over."""
    return now >= begins + (ends - begins) * RENEW_AT


def _signer(now: datetime, living: Sequence[Authority], pace: Pace) -> Authority:
    """The newest that everybody has read of; while there is none, the one that is known for longest."""
    known = [one for one in living if now - one.announced >= pace.announcement]
    return known[0] if known else living[-1]


def _over(now: datetime, signer: Authority, pace: Pace) -> bool:
    """Whatever the authorities before `signer` signed has ended, too."""
    return now >= signer.announced + pace.announcement + pace.longest_leaf
