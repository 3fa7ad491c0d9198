"""Requests without an episode that reach an arm which may not answer are answered by stable.

Routes and Services follow a verdict after a while, or not at all without an operator: until then a canary that was
withdrawn, is in shadow, or whose table has expired hands such requests on. Those with an episode are refused, because
agents can reopen it.

In service mode the ModelDeployment's address leads to every arm's pods, whatever their weights. So an arm of weight 0
hands such requests on as well. Episodes that were opened on it continue there.
"""

import httpx
from starlette.requests import Request
from starlette.responses import Response

from learnloop_api.names import HEADER_ARM
from learnloop_api.wire.routing import Arm, RoutingTable
from learnloop_common.tls.contexts import client_context
from learnloop_serving.arm_draw import stable_arm
from learnloop_serving.refusal import Refusal
from learnloop_serving.routing_table import RoutingState
from learnloop_serving.shadow import Shadow

TIMEOUT_SECONDS = 10.0
_ASKED_WITH = ("content-type", "authorization")
"""The stable arm checks the caller, too."""


class StandIn:
    """One server's connection to the stable arm, opened when it is needed first."""

    def __init__(self, revision: str, routing: RoutingState, shadow: Shadow) -> None:
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
        stable = stable_arm(table)
        if stable is None and any(arm.revision == self._revision for arm in table.arms):
            raise Refusal(503, "NotReady", f"revision {self._revision} is at its gates, and no other arm serves yet")
        return stable if stable is not None and stable.revision != self._revision else None

    async def answer(self, arm: Arm, request: Request, body: bytes) -> Response:
        """Answer of `arm`; raises Refusal 503 without one within TIMEOUT_SECONDS."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False, verify=client_context())
        headers = {name: request.headers[name] for name in _ASKED_WITH if name in request.headers}
        headers[HEADER_ARM] = arm.revision
        try:
            answer = await self._client.post(f"{arm.url}{request.url.path}", content=body, headers=headers)
        except httpx.HTTPError as error:
            message = f"revision {self._revision} may not answer, and stable does not answer in its place: {error}"
            raise Refusal(503, "NotReady", message[:500]) from error
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))


def _has_traffic(table: RoutingTable, revision: str) -> bool:
    """May `revision` answer requests without an episode?

    In gateway mode the HTTPRoute has the weights, and the table gives all of them to stable: there, listed is enough.
    """
    return any(arm.revision == revision and (arm.weight > 0 or table.mode == "gateway") for arm in table.arms)
