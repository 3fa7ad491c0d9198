"""No episode goes to a canary that has not yet answered at its address.

A canary's pods are ready before the last node leads its Service's address to them: the endpoints travel through the
API server to each node's proxy, and a second or more may pass. The first episodes of every rollout would fall into
that gap and count against nobody, for what reaches no pod is in no pod's metrics. So each server that draws knocks at
the address its agents are about to be sent to, and draws the canary from its first answer on. The weight's bound holds
as before: until then stable gets the canary's episodes, and the canary earns no credit for them (arm_draw.py).

One answer is enough. A canary that stops answering later is the evidence's business, not the draw's: an arm whose
failures sent its episodes elsewhere would look better than it is.
"""

import asyncio
import logging
import time

import httpx

from learnloop_api.wire.routing import Arm
from learnloop_common.tls.contexts import client_context
from learnloop_serving.routing_table import RoutingState

log = logging.getLogger(__name__)
PATH = "/readyz"
POLL_SECONDS = 0.1
TIMEOUT_SECONDS = 1.0
LONGEST_PAUSE = 2.0
REMIND_SECONDS = 30.0


class Reach:
    """Canaries of the table in force that have answered this server."""

    def __init__(self, routing: RoutingState) -> None:
        self._routing = routing
        self._answered: set[tuple[str, str]] = set()

    def reached(self, arm: Arm) -> bool:
        """Has `arm` answered at its address since it was listed?"""
        return (arm.revision, arm.url) in self._answered

    def answered(self, arm: Arm) -> None:
        """`arm` has answered at its address."""
        self._answered.add((arm.revision, arm.url))

    async def run(self) -> None:
        """Knock at every canary that has not answered yet, until cancelled; at most 10 times a second for each table,
        less often the longer one stays silent."""
        pause, message = POLL_SECONDS, time.monotonic()
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False, verify=client_context()) as client:
            while True:
                silent = self._silent()
                if not silent:
                    pause, message = POLL_SECONDS, time.monotonic()
                    await asyncio.sleep(POLL_SECONDS)
                    continue
                if not all(await asyncio.gather(*(self._knock(client, arm) for arm in silent))):
                    if time.monotonic() - message > REMIND_SECONDS:
                        message = time.monotonic()
                        log.warning("no answer yet from %s: they get no episodes", ", ".join(a.url for a in silent))
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)

    def _silent(self) -> list[Arm]:
        """Canaries that have not answered; who left the table is forgotten, for its address may come back empty."""
        table = self._routing.table
        listed = [arm for arm in table.arms if arm.role == "canary"] if table is not None else []
        self._answered &= {(arm.revision, arm.url) for arm in listed}
        return [arm for arm in listed if arm.weight > 0 and not self.reached(arm)]

    async def _knock(self, client: httpx.AsyncClient, arm: Arm) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answer = await client.get(f"{arm.url}{PATH}")
        except Exception as error:  # neither a URL nor a connection in any state may end the checks
            log.debug("canary %s at %s: %r", arm.revision, arm.url, error)
            return False
        if answer.status_code == 200:
            log.info("canary %s answers at %s", arm.revision, arm.url)
            self.answered(arm)
        return answer.status_code == 200
