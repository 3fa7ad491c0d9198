"""A port of its own for probes and metrics: no flood of callers takes them from kubelet, operator and Prometheus."""

import asyncio
import contextlib
from collections.abc import Iterator

import uvicorn

CONNECTIONS = 64
"""More than a kubelet, an operator and some Prometheus ever have."""


class Beside(uvicorn.Server):
    """A server in the event loop of another, which hears the signals for both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves them to the other."""
        yield


async def serve_both(ours: uvicorn.Server, probes: uvicorn.Config | None) -> None:
    """Serves callers until `ours` ends, and beside it, in the same event loop, who asks how this process is."""
    beside = asyncio.create_task(Beside(probes).serve()) if probes is not None else None
    try:
        await ours.serve()
    finally:
        if beside is not None:
            beside.cancel()
