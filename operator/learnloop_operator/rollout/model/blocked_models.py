"""What was rolled back and is not tried again: a bounded list, until somebody says retry.

A revision also hashes the options of its pods, so that an annotation on them would make a bad model a new revision.
Its artifact stays what it is: a model is blocked by either. An artifact is its digest, whatever address it has now.
"""

from collections.abc import Iterable

from learnloop_api.kinds.model_deployment import BlockedRevision, ModelDeploymentStatus
from learnloop_operator.rollout.model.snapshot import Model

MOST = 256
"""Entries of status.blockedRevisions. The one that was rolled back longest ago leaves first."""
SHORT = 128
"""Characters kept of the message of every entry but the newest."""

Pins = tuple[BlockedRevision, ...]


def load(status: ModelDeploymentStatus) -> Pins:
    """Oldest first."""
    return tuple(status.blocked_revisions or ())


def with_pin(pins: Pins, pin: BlockedRevision) -> Pins:
    """The list with one more at its end; an earlier entry of the same revision goes."""
    before = tuple(_shortened(old) for old in pins if old.revision != pin.revision)
    return (*before[-(MOST - 1) :], pin)


def without(pins: Pins, gone: BlockedRevision) -> Pins:
    """The list without exactly this entry."""
    return tuple(pin for pin in pins if pin.revision != gone.revision)


def of_revision(pins: Pins, revision: str | None) -> BlockedRevision | None:
    """The entry of exactly this revision."""
    return next((pin for pin in pins if pin.revision == revision), None)


def in_the_way(pins: Pins, model: Model | None, stable: Model | None) -> BlockedRevision | None:
    """What keeps the model from being tried: its own entry, else the newest of its artifact.

    Where stable serves the same artifact, not the artifact was at fault but the pods it ran with: other pods are tried.
    """
    if model is None:
        return None
    if own := of_revision(pins, model.revision):
        return own
    if stable is not None and _same(stable, model):
        return None
    return next((pin for pin in reversed(pins) if _same(Model(pin.revision, pin.uri, pin.sha256), model)), None)


def shown(pins: Pins, model: Model | None, stable: Model | None) -> BlockedRevision | None:
    """The entry that people see first: what is in the way of the wished model, else the newest."""
    return in_the_way(pins, model, stable) or next(reversed(pins), None)


def sentence(pin: BlockedRevision, model: Model) -> str:
    """Why the model is not tried."""
    if pin.revision == model.revision:
        return pin.message
    return f"{model.revision} is the model of {pin.revision}, with other pods or at another address: {pin.message}"


def named(pins: Iterable[BlockedRevision]) -> str:
    """Their revisions, for a sentence."""
    return ", ".join(pin.revision for pin in pins)


def _same(one: Model, other: Model) -> bool:
    if one.sha256 is None or other.sha256 is None:
        return one.sha256 == other.sha256 and one.uri == other.uri
    return one.sha256 == other.sha256


def _shortened(pin: BlockedRevision) -> BlockedRevision:
    if len(pin.message) <= SHORT:
        return pin
    return pin.model_copy(update={"message": pin.message[: SHORT - 1] + "…"})
