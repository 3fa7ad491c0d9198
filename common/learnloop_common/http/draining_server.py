"""A server that ends without a refusal: a pod that is told to end is led to for a while longer."""

import logging
import signal
import time
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)
_CLOSE = (b"connection", b"close")


class Drains(Protocol):
    """What a server serves, and whether it is about to end."""

    draining: bool
    drain_seconds: float


@dataclass
class Drain:
    """Of a server that has nothing else to remember it."""

    drain_seconds: float
    draining: bool = False


class DrainingServer(uvicorn.Server):
    """On SIGTERM: not ready first, then keep serving `drain_seconds` while endpoints forget this pod, then stop."""

    def __init__(self, config: uvicorn.Config, arm: Drains) -> None:
        super().__init__(config)
        self._arm = arm
        self._stop_at = float("inf")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """uvicorn's signal handler; a second signal stops at once."""
        if self._arm.draining or sig != signal.SIGTERM:
            super().handle_exit(sig, frame)
            return
        log.info("draining for %g s", self._arm.drain_seconds)
        self._arm.draining = True
        self._stop_at = time.monotonic() + self._arm.drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's heartbeat, ten a second; True ends the server."""
        return time.monotonic() >= self._stop_at or await super().on_tick(counter)


def closing(app: ASGIApp, drain: Drains) -> ASGIApp:
    """`app`, whose answers end their connections while it drains: the next request then goes to somebody else."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if drain.draining and message["type"] == "http.response.start":
                kept = [header for header in message.get("headers", ()) if header[0].lower() != _CLOSE[0]]
                message = {**message, "headers": [*kept, _CLOSE]}
            await send(message)

        await app(scope, receive, sent if scope["type"] == "http" else send)

    return answered
