"""The audit log: one JSON object per line for every decision a person took, on standard output, and a counter.

Diagnostics go to standard error in a form for people; a collector can take the one without the other.
"""

import json
import logging
import sys
from dataclasses import dataclass

from prometheus_client import Counter

from learnloop_operator.core.plan import Manifest

log = logging.getLogger("learnloop.audit")


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Writes decisions down once they are in the object's status."""

    decisions: Counter

    def record(self, entry: Manifest) -> None:
        """One line. `entry`: kind, namespace, name, verb, revision, step, by, verified, at, outcome, message, value."""
        log.info("%s", json.dumps({"app": "learnloop-operator", "stream": "audit", **entry}, sort_keys=True))
        self.decisions.labels(kind=entry["kind"], verb=entry["verb"], outcome=entry["outcome"]).inc()


def to_standard_output() -> None:
    """Nothing but JSON on that stream."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
