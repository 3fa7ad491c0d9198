"""A trajectory between the end of its episode and its encoding.

Encoded at once and by itself, an episode of 22 steps costs the agent's process 150 µs of processor time: its
environment and its policy have driven the code out of the caches. Encoded with others, it costs 40 µs.
"""

import logging
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from learnloop_sdk.counters import Counters
from learnloop_sdk.recording.spool import Parcel
from learnloop_sdk.recording.step_rows import Steps, encode
from learnloop_sdk.redact import Redactor

log = logging.getLogger(__name__)
_STILL = frozenset((list, str, int, float, bool, type(None)))


@dataclass(frozen=True, slots=True)
class Draft:
    """wire.Trajectory as plain data and its steps; nobody else writes into either any more."""

    head: dict[str, Any]
    steps: Steps
    redactor: Redactor

    @property
    def trajectory_id(self) -> str:
        """As in the head."""
        return str(self.head["trajectory_id"])

    @property
    def size(self) -> int:
        """About how many numbers or characters there are to encode."""
        first = self.steps.rows[0][0]
        return len(self.steps) * (8 + (len(first) if isinstance(first, Sized) else 1))

    @property
    def can_wait(self) -> bool:
        """Whether it will still say the same later: objects are the agent's own, and it may write into them."""
        if type(self.head.get("last_observation")) not in _STILL:
            return False
        return all(type(row[0]) in _STILL and type(row[1]) in _STILL for row in self.steps.rows)

    def sealed(self, counters: Counters) -> Parcel | None:
        """Redacted, checked and encoded; None, counted and said, where that is not possible."""
        try:
            return Parcel(self.trajectory_id, encode(self.head, self.steps, self.redactor))
        except ValidationError as error:
            log.error("trajectory not recorded: %s", error.errors(include_url=False, include_input=False)[:3])
        except Exception:  # a redactor is the agent's own code; what it could not clean must not leave the process
            log.exception("trajectory not recorded: the redactor failed")
        counters.trajectories_rejected += 1
        return None
