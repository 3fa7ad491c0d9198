"""A canary is drawn from its first answer at its address on.

Its pods are ready a second or more before every node routes its Service's address to them. The first episodes of each
rollout would fail in that gap, in no pod's metrics. Until then stable gets the canary's episodes, and the canary earns
no credit for them (arm_draw.py). One answer is enough: later failures are evidence.
"""

import asyncio
import logging

import httpx

from learnloop_api.wire.routing import Arm
from learnloop_common.tls.contexts import client_context
from learnloop_serving.routing_table import RoutingState

log = logging.getLogger(__name__)
POLL_SECONDS = 0.1
TIMEOUT_SECONDS = 1.0


class Reach:
    """Canaries of the table in force that have answered this server."""

    def __init__(self, routing: RoutingState) -> None:
        self._routing = routing
        self._answered: set[tuple[str, str]] = set()

    def reached(self, arm: Arm) -> bool:
        """Has `arm` answered at its address since it was listed?"""
        return (arm.revision, arm.url) in self._answered

    def answered(self, arm: Arm) -> None:
        """Note an answer of `arm`."""
        log.info("canary %s answers at %s", arm.revision, arm.url)
        self._answered.add((arm.revision, arm.url))

    async def run(self) -> None:
        """Ask every canary that has not answered yet, until cancelled."""
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False, verify=client_context()) as client:
            while True:
                await asyncio.gather(*(self._ask(client, arm) for arm in self._silent()))
                await asyncio.sleep(POLL_SECONDS)

    def _silent(self) -> list[Arm]:
        """Canaries that have not answered. Those that left the table are forgotten: they may come back without pods."""
        table = self._routing.table
        listed = [arm for arm in table.arms if arm.role == "canary"] if table is not None else []
        self._answered &= {(arm.revision, arm.url) for arm in listed}
        return [arm for arm in listed if arm.weight > 0 and not self.reached(arm)]

    async def _ask(self, client: httpx.AsyncClient, arm: Arm) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answer = await client.get(f"{arm.url}/readyz")
        except Exception as error:  # no URL and no connection may end the checks
            log.debug("canary %s at %s: %r", arm.revision, arm.url, error)
            return
        if answer.status_code == 200:
            self.answered(arm)
