"""After the dead-man switch: requests that know no episodes and still reach a canary are answered by stable.

Nobody is there to change a route or a Service when the operator is gone, so the arm itself hands them on.
"""

from datetime import UTC, datetime

import httpx
from fastapi import Request, Response

from learnloop_serving.draw import stable_arm
from learnloop_serving.oip import HEADER_JSON_LENGTH
from learnloop_serving.refusal import Refusal
from learnloop_serving.routing import RoutingState

TIMEOUT_SECONDS = 10.0
_PASSED = ("content-type", HEADER_JSON_LENGTH)


class StandIn:
    """One server's connection to the stable arm, opened when it is needed first."""

    def __init__(self, revision: str, routing: RoutingState) -> None:
        self._revision = revision
        self._routing = routing
        self._client: httpx.AsyncClient | None = None

    @property
    def address(self) -> str:
        """Base URL of the stable arm when it has to answer in this arm's place; "" when this arm answers."""
        table = self._routing.table
        if table is None or not table.expired(datetime.now(UTC)):
            return ""
        stable = stable_arm(table)
        return stable.url if stable is not None and stable.revision != self._revision else ""

    async def answer(self, request: Request, body: bytes) -> Response:
        """Stable's answer to `request`; raises Refusal 503 when it gives none within TIMEOUT_SECONDS."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False)
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        try:
            answer = await self._client.post(f"{self.address}{request.url.path}", content=body, headers=headers)
        except httpx.HTTPError as error:
            message = f"the routing table has expired and stable does not answer in this canary's place: {error}"
            raise Refusal(503, "NotReady", message[:500]) from error
        kept = {name: answer.headers[name] for name in _PASSED if name in answer.headers}
        return Response(answer.content, answer.status_code, headers=kept)
