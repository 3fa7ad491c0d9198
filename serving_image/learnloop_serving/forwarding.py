"""Requests to other arms: stable answers in a server's place, and a new canary says whether it is reached."""

import asyncio
import logging

import httpx
from starlette.requests import Request
from starlette.responses import Response

from learnloop_api.names import HEADER_ARM
from learnloop_api.wire.routing import Arm, RoutingTable
from learnloop_common.tls import client_context
from learnloop_serving import arm_choice, refusals, routing_table_in_force
from learnloop_serving.shadow import Shadow

log = logging.getLogger(__name__)
TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.1
PROBE_SECONDS = 1.0
_FORWARDED_HEADERS = ("content-type", "authorization")
"""The stable arm checks the caller, too."""


class StandIn:
    """Requests without an episode that reach an arm which may not answer are answered by stable.

    Routes and Services follow a verdict after a while, or not at all without an operator: until then a canary that was
    withdrawn, is in shadow, or whose table has expired hands such requests on. Those with an episode are refused,
    because agents can reopen it.

    In service mode the ModelDeployment's address leads to every arm's pods, whatever their weights. So an arm of weight
    0 hands such requests on as well. Episodes that were opened on it continue there.
    """

    def __init__(self, revision: str, routing: routing_table_in_force.RoutingState, shadow: Shadow) -> None:
        self._revision = revision
        self._routing = routing
        self._shadow = shadow
        self._client: httpx.AsyncClient | None = None

    def arm(self, request: Request) -> Arm | None:
        """The stable arm if it has to answer `request` in this arm's place; None if this arm answers or refuses.

        A request that names an arm, by the header or by the version in the path, is answered by that arm. One that was
        handed on names it, so that nothing is handed on twice. Raises Refusal 503 while no arm may answer: the first
        model is at its gates.
        """
        table = self._routing.table
        if table is None or HEADER_ARM in request.headers or "version" in request.path_params:
            return None
        serves = _has_traffic(table, self._revision) and not self._shadow.on
        if serves and not self._routing.expired:
            return None
        stable = arm_choice.stable_arm(table)
        if stable is None and any(arm.revision == self._revision for arm in table.arms):
            raise refusals.Refusal(
                503, "NotReady", f"revision {self._revision} is at its gates, and no other arm serves yet"
            )
        return stable if stable is not None and stable.revision != self._revision else None

    async def answer(self, arm: Arm, request: Request, body: bytes) -> Response:
        """Answer of `arm`; raises Refusal 503 without one within TIMEOUT_SECONDS."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False, verify=client_context())
        headers = {name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers}
        headers[HEADER_ARM] = arm.revision
        try:
            answer = await self._client.post(f"{arm.url}{request.url.path}", content=body, headers=headers)
        except httpx.HTTPError as error:
            message = f"revision {self._revision} may not answer, and stable does not answer in its place: {error}"
            raise refusals.Refusal(503, "NotReady", message[:500]) from error
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))


def _has_traffic(table: RoutingTable, revision: str) -> bool:
    """May `revision` answer requests without an episode?

    In gateway mode the HTTPRoute has the weights, and the table gives all of them to stable: there, listed is enough.
    """
    return any(arm.revision == revision and (arm.weight > 0 or table.mode == "gateway") for arm in table.arms)


class Reach:
    """Canaries of the table in force that have answered this server: a canary is drawn from its first answer on.

    Its pods are ready a second or more before every node routes its Service's address to them. The first episodes of
    each rollout would fail in that gap, in no pod's metrics. Until then stable gets the canary's episodes, and the
    canary earns no credit for them (CreditBank). One answer is enough: later failures are evidence.
    """

    def __init__(self, routing: routing_table_in_force.RoutingState) -> None:
        self._routing = routing
        self._answered: set[tuple[str, str]] = set()

    def reached(self, arm: Arm) -> bool:
        """Has `arm` answered at its address since it was listed?"""
        return (arm.revision, arm.url) in self._answered

    def answered(self, arm: Arm) -> None:
        log.info("canary %s answers at %s", arm.revision, arm.url)
        self._answered.add((arm.revision, arm.url))

    async def run(self) -> None:
        """Ask every canary that has not answered yet, until cancelled."""
        async with httpx.AsyncClient(timeout=PROBE_SECONDS, trust_env=False, verify=client_context()) as client:
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
            async with asyncio.timeout(PROBE_SECONDS):
                answer = await client.get(f"{arm.url}/readyz")
        except Exception as error:  # no URL and no connection may end the checks
            log.debug("canary %s at %s: %r", arm.revision, arm.url, error)
            return
        if answer.status_code == 200:
            self.answered(arm)
