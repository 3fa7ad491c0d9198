"""The operator as it is, with a note of when each pass that wrote a status was asked for, begun, and answered.

    LEARNLOOP_BENCH_TRACE=FILE python -m bench.operator.traced

FILE gets one JSON array a line, moments as time.monotonic() (CLOCK_MONOTONIC: the same for all processes of a machine):
[kind, namespace, name, marked, free, taken, status write sent, status write answered], where `free` is the end of the
pass before, if that is later than `marked`. It is complete when the process ended.
"""

import os
import sys
import time
from typing import Any, TextIO

import orjson

from learnloop_operator import __main__ as operator
from learnloop_operator.core.plan import Manifest
from learnloop_operator.kube.client import KubeClient
from learnloop_operator.kube.kinds import ResourceKind
from learnloop_operator.reconcile import operator_process, runtime
from learnloop_operator.reconcile.work_queue import ObjectKey, WorkQueue

_marked: dict[ObjectKey, float] = {}
"""Since when an object has waited for a pass."""
_ended: dict[ObjectKey, float] = {}
"""When its last pass was over."""
_passes: dict[ObjectKey, tuple[float, float, float]] = {}
"""Marked, free and taken, of the pass under way."""


class TracedQueue(WorkQueue):
    """Remembers when an object was first marked, and when it was taken."""

    def mark(self, key: ObjectKey, *, first: bool = False) -> None:
        """As WorkQueue."""
        _marked.setdefault(key, time.monotonic())
        super().mark(key, first=first)

    async def take(self) -> ObjectKey:
        """As WorkQueue."""
        key = await super().take()
        now = time.monotonic()
        marked = _marked.pop(key, now)
        _passes[key] = (marked, max(marked, _ended.pop(key, marked)), now)
        return key

    def done(self, key: ObjectKey) -> None:
        """As WorkQueue."""
        _ended[key] = time.monotonic()
        super().done(key)


def traced_client(file: TextIO) -> type[KubeClient]:
    """A KubeClient that notes each status write in `file`."""

    class TracedClient(KubeClient):
        async def apply_status(
            self,
            kind: ResourceKind,
            namespace: str,
            name: str,
            status: Manifest,
            manager: str,
            *,
            live: Manifest,
        ) -> dict[str, Any]:
            sent = time.monotonic()
            after = await super().apply_status(kind, namespace, name, status, manager, live=live)
            if after["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]:
                moments = (*_passes[ObjectKey(kind.kind, namespace, name)], sent, time.monotonic())
                file.write(orjson.dumps([kind.kind, namespace, name, *moments]).decode() + "\n")
            return after

    return TracedClient


def main() -> int:
    """As the operator's own."""
    with open(os.environ["LEARNLOOP_BENCH_TRACE"], "w", encoding="utf-8") as file:
        setattr(runtime, "WorkQueue", TracedQueue)  # noqa: B010  # by name: modules do not export what they import
        setattr(operator_process, "KubeClient", traced_client(file))  # noqa: B010
        return operator.main()


if __name__ == "__main__":
    sys.exit(main())
