"""Heavy work: one at a time for each agent, a few at a time in a process; whoever comes too many is told so at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from learnloop_dataplane.errors import ApiError

RETRY_SECONDS = 10


class OneEach:
    """Who is at it. To be entered before a connection is taken: what waits here would keep it from everybody else.

    Args:
        what: the work, as a refusal names it.
        at_once: how much of it there is at a time.
    """

    def __init__(self, what: str, at_once: int) -> None:
        self._what = what
        self._at_once = at_once
        self._busy: set[tuple[str, str]] = set()

    @contextmanager
    def turn(self, namespace: str, agent: str) -> Iterator[None]:
        """Around the work for one agent.

        Raises:
            ApiError: 429, this agent is being seen to, or as many others as may be.
        """
        if (namespace, agent) in self._busy:
            message = f"{self._what} of this agent is under way; send it again after {RETRY_SECONDS} s"
            raise ApiError(429, message, field="agent_id", value=agent, retry_after=RETRY_SECONDS)
        if len(self._busy) >= self._at_once:
            message = f"{self._what} of {self._at_once} agents is under way; send it again after {RETRY_SECONDS} s"
            raise ApiError(429, message, retry_after=RETRY_SECONDS)
        self._busy.add((namespace, agent))
        try:
            yield
        finally:
            self._busy.discard((namespace, agent))
