"""What the gateway asks of a server that runs a model."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from learnloop_api.wire.language import TokenSampling


class UpstreamDown(Exception):
    """The server does not answer, answers with an error of its own, or was left alone for a while."""

    def __init__(self, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message[:500])
        self.retry_after = retry_after


class UpstreamBusy(UpstreamDown):
    """The server answers 429: it works, and takes no more for now."""


class UpstreamRefused(Exception):
    """The server works, and does not take this request: the message says why."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Some tokens.

    Attributes:
        ids: the tokens.
        log_probs: natural log of the probability each was drawn with, after the temperature; at temperature 0 before
            it. None: the server does not say, or says it of another distribution.
        finish: why there are no more; None: there may be.
        total: tokens the server says it has drawn in all, where it says so with the last ones.
    """

    ids: Sequence[int]
    log_probs: Sequence[float] | None
    finish: Literal["stop", "length"] | None = None
    total: int | None = None


def token_ids(found: Any) -> list[int]:
    """The ids a server gave; raises TypeError for anything else."""
    if not isinstance(found, list) or not all(type(one) is int and 0 <= one < 2**31 for one in found):
        raise TypeError(f"{str(found)[:80]!r} are no token ids")
    return found


class TokenUpstream(Protocol):
    """A server that takes token ids and gives token ids."""

    def draw(self, prompt: Sequence[int], sampling: TokenSampling, *, stream: bool) -> AsyncGenerator[Drawn, None]:
        """Draw an answer to `prompt`, in pieces or at once.

        Raises:
            UpstreamDown, UpstreamBusy, UpstreamRefused.
        """
        ...

    async def prepare(self) -> None:
        """Return when the server has the arm's weights and answers; raises UpstreamDown while it does not."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class ChatUpstream(Protocol):
    """A server that speaks OpenAI's format and says nothing of tokens: what it says is recorded as text."""

    def ask(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The server's answer to `body`, the pieces of its stream or the whole; raises as TokenUpstream.draw."""
        ...

    async def prepare(self) -> None:
        """See TokenUpstream."""
        ...

    async def close(self) -> None:
        """See TokenUpstream."""
        ...


Upstream = TokenUpstream | ChatUpstream
