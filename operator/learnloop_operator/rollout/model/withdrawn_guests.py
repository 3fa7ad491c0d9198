"""gateway mode: who left an experiment, as the HTTPRoute carries it in the very write that drops their share.

That a guest is not in the route may also mean that it was never raised. So the route says it, for a successor of an
operator that died before the status did (rollout/experiment/recover_withdrawals.py).
"""

from typing import Literal

from pydantic import Field

from learnloop_api.kinds.rollouts.experiment import MOST_ARMS
from learnloop_api.names import GROUP
from learnloop_api.wire.base import WireModel
from learnloop_operator.core.json_annotation import noted

ANNOTATION = f"{GROUP}/guests-out"


class WithdrawnGuest(WireModel):
    """One arm that gets no more episodes of the experiment."""

    revision: str = Field(pattern=r"^[0-9a-f]{8}$")
    standing: Literal["beaten", "withdrawn"]
    message: str = Field(max_length=1024)


class WithdrawnGuests(WireModel):
    """All of them. `since`: when the experiment began to run; the same one may be tried again later."""

    experiment: str = Field(max_length=64)
    since: str = Field(max_length=64)
    guests: tuple[WithdrawnGuest, ...] = Field(max_length=MOST_ARMS)


def written(out: WithdrawnGuests | None) -> dict[str, str]:
    """Annotations of the route."""
    return {ANNOTATION: out.model_dump_json()} if out else {}


def read(metadata: object) -> WithdrawnGuests | None:
    """What the live route's metadata say; a note that is none counts as none."""
    return noted(metadata, ANNOTATION, WithdrawnGuests)
