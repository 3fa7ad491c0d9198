"""Hands steps that have ended to the exporter, each once while this process lives.

A process that dies forgets what it has sent. The next leader reads from the status what ended lately and sends it
again, with the same ids and times.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from learnloop_operator.core import rollout_trace, traces
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.traces import Span
from learnloop_operator.kube.kinds import TRAINING_JOB
from learnloop_operator.kube.object_cache import ObjectCache


@dataclass(frozen=True, slots=True)
class JobsByArtifact:
    """Looks at each TrainingJob of the namespace: asked once a rollout, it needs no index."""

    cache: ObjectCache

    def __call__(self, namespace: str, digest: str) -> dict[str, Any] | None:
        """The job whose status names the artifact with this SHA-256."""
        for place, name in self.cache.names(TRAINING_JOB):
            body = self.cache.get(TRAINING_JOB, place, name) if place == namespace else None
            if body and ((body.get("status") or {}).get("artifact") or {}).get("sha256") == digest:
                return body
        return None


NEWS = timedelta(hours=1)
"""What ended before that is not sent again by a new leader."""
MOST = 20_000
"""Ids and open traces that are remembered."""
_KEPT = ("uid", "name", "namespace", "creationTimestamp", "labels")
Key = tuple[str, str, str]
JobOf = Callable[[str, str], Manifest | None]


class Exporter(Protocol):
    """Takes spans and never waits."""

    def send(self, spans: Sequence[Span]) -> None:
        """Send spans in this order."""


class Tracer:
    """`job_of`: the TrainingJob of a namespace that made the artifact with this digest, as far as it is known."""

    def __init__(self, exporter: Exporter, job_of: JobOf) -> None:
        self._exporter, self._job_of = exporter, job_of
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._open: OrderedDict[Key, Manifest] = OrderedDict()

    def saw(
        self, kind: str, body: Manifest, before: Mapping[str, Any], after: Mapping[str, Any], now: datetime
    ) -> None:
        """A pass over `body` found the status `before`, and `after` is on record."""
        if kind == "TrainingJob":
            spans = traces.ended(body, before, after, now)
            going = not after.get("finishedAt")
        elif kind == "ModelDeployment":
            spans = rollout_trace.ended(body, before, after, now)
            going = rollout_trace.under_way(after)
        else:
            return
        self._note((kind, str(body["metadata"]["namespace"]), str(body["metadata"]["name"])), body, after, going)
        fresh = [span for span in spans if span.ended >= now - NEWS and self._is_new(span)]
        if fresh:
            self._exporter.send([self._linked(kind, body, after, span) for span in fresh])

    def gone(self, kind: str, namespace: str, name: str, now: datetime) -> None:
        """The object was deleted: a trace that was under way ends here."""
        body = self._open.pop((kind, namespace, name), None)
        if body is None:
            return
        root = traces.cancelled(body, now) if kind == "TrainingJob" else rollout_trace.cancelled(body, now)
        if root is not None and self._is_new(root):
            self._exporter.send([root])

    def _note(self, key: Key, body: Manifest, status: Mapping[str, Any], going: bool) -> None:
        if going:
            metadata = {part: body["metadata"].get(part) for part in _KEPT}
            self._open[key] = {"metadata": metadata, "status": status}
            if len(self._open) > MOST:
                self._open.popitem(last=False)
        else:
            self._open.pop(key, None)

    def _is_new(self, span: Span) -> bool:
        # Ids of steps are their traces' own: two traces never share one.
        if span.id in self._sent:
            return False
        self._sent[span.id] = None
        if len(self._sent) > MOST:
            self._sent.popitem(last=False)
        return True

    def _linked(self, kind: str, body: Manifest, status: Mapping[str, Any], span: Span) -> Span:
        digest = rollout_trace.model_of(status) if kind == "ModelDeployment" and not span.parent else ""
        job = self._job_of(str(body["metadata"]["namespace"]), digest) if digest else None
        return replace(span, links=rollout_trace.linked(span, job)) if job is not None else span
