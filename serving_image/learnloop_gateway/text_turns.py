"""One turn by a server that gives text alone: handed through, and recorded as text where an arm said it."""

from contextlib import aclosing
from typing import Any

import orjson

from learnloop_api.wire.base import MOST
from learnloop_gateway.chat_template import MOST_CALLS
from learnloop_gateway.metrics import LanguageMetrics
from learnloop_gateway.recording import OpenSessions, Recording
from learnloop_gateway.replies import DONE, ApiError, Outgoing, event
from learnloop_gateway.requests import ChatRequest, CompletionRequest
from learnloop_gateway.session import Session, newest
from learnloop_gateway.token_turns import messages_seen, text_step
from learnloop_gateway.upstream import ChatUpstream, UpstreamBusy, UpstreamDown, UpstreamRefused

PATHS = {True: "/v1/chat/completions", False: "/v1/completions"}
OURS = ("metadata", "store")
"""Fields of a request that are the gateway's business."""


class SaidText:
    """Answer of a server, assembled from the pieces of its stream or from the whole."""

    def __init__(self) -> None:
        self.content = ""
        self.calls: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}
        """Where the call of each index of the stream stands."""
        self.usage: dict[str, Any] = {}
        self.whole = b""
        self.answered = False
        """Some piece had a choice with a message in it, empty or not."""
        self.finished = False
        """It is a whole message, or some piece said why there are no more."""

    def take(self, piece: dict[str, Any]) -> None:
        """One piece; what has another shape than OpenAI's adds nothing."""
        usage = piece.get("usage")
        self.usage = usage if isinstance(usage, dict) else self.usage
        for choice in _listed(piece.get("choices")):
            if not isinstance(choice, dict):
                continue
            self.answered = self.answered or any(key in choice for key in ("message", "delta", "text"))
            self.finished = self.finished or "message" in choice or isinstance(choice.get("finish_reason"), str)
            matches = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
            if isinstance(matches, dict):
                self.content += str(matches.get("content") or "")
                for call in _listed(matches.get("tool_calls")):
                    self._call(call)

    def _call(self, call: Any) -> None:
        function = call.get("function") or {} if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return
        index, identity, name = call.get("index"), str(call.get("id") or ""), str(function.get("name") or "")
        place = next((at for at, other in enumerate(self.calls) if identity and other["id"] == identity), None)
        if place is None:
            place = self._places.get(index) if isinstance(index, int) else None
            if place is None and not isinstance(index, int) and not identity and not name and self.calls:
                place = len(self.calls) - 1  # more of the last one, by a server that sends no index
            if place is not None and self._is_another(self.calls[place], identity, name):
                place = None  # some servers number every call 0
        if place is None:
            place = len(self.calls)
            if place >= MOST_CALLS:
                return
            self.calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        if isinstance(index, int):
            self._places[index] = place
        joined = self.calls[place]
        joined["id"] = joined["id"] or identity
        if name != joined["function"]["name"]:
            joined["function"]["name"] += name
        joined["function"]["arguments"] += str(function.get("arguments") or "")

    @staticmethod
    def _is_another(call: dict[str, Any], identity: str, name: str) -> bool:
        """Whether a piece of this identity and name begins another call than this one."""
        if identity and call["id"]:
            return bool(identity != call["id"])
        return bool(name and call["function"]["arguments"])

    def to_message(self) -> dict[str, Any]:
        """The whole answer."""
        calls = {"tool_calls": self.calls} if self.calls else {}
        return {"role": "assistant", "content": self.content} | calls

    def tokens(self, name: str) -> int:
        """A count of the server's; 0 where it gives none."""
        result = self.usage.get(name)
        return min(result, MOST) if type(result) is int and result >= 0 else 0


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


class Relaying:
    """Answers by a server that speaks as OpenAI does."""

    def __init__(
        self, upstream: ChatUpstream, sessions: OpenSessions, recording: Recording, metrics: LanguageMetrics
    ) -> None:
        self._upstream, self._sessions, self._recording = upstream, sessions, recording
        self._metrics = metrics

    async def answer(
        self, session: Session, request: ChatRequest | CompletionRequest, raw: dict[str, Any], out: Outgoing
    ) -> None:
        """An arm's answer. Raises as Answering.answer."""
        session.private = session.private or request.store is False
        message = await self._relay(request, raw, out)
        session = self._sessions.going_on(session)
        if isinstance(request, ChatRequest):
            fields = messages_seen(newest(request.messages) if session.recorded else request.messages)
        else:
            fields = {"prompt": request.prompt}
        wanted, spoken = message.tokens("prompt_tokens"), message.tokens("completion_tokens")
        session.count(wanted, spoken, len(message.calls))
        self._metrics.tokens["asked"].inc(wanted)
        self._metrics.tokens["said"].inc(spoken)
        text = "nothing"
        if self._recording.on and not session.private and not session.pinned:
            text = "text" if self._recording.turn(session, text_step(fields, message.to_message())) else "nothing"
        self._metrics.turns[text].inc()
        session.turns += 1
        await _end(message, out)

    async def stand_in(self, request: ChatRequest | CompletionRequest, raw: dict[str, Any], out: Outgoing) -> None:
        """The fallback's answer: counted, and never recorded. Raises as Answering.answer."""
        try:
            message = await self._relay(request, raw, out)
        except (UpstreamDown, ApiError):
            self._metrics.fallbacks["failed"].inc()
            raise
        self._metrics.fallbacks["answered"].inc()
        await _end(message, out)

    async def _relay(self, request: ChatRequest | CompletionRequest, raw: dict[str, Any], out: Outgoing) -> SaidText:
        message = SaidText()
        early: list[bytes] = []
        body = {name: value for name, value in raw.items() if name not in OURS}
        path = PATHS[isinstance(request, ChatRequest)]
        try:
            async with aclosing(self._upstream.ask(path, body)) as pieces:
                async for piece in pieces:
                    message.take(piece)
                    if not request.stream:
                        message.whole = orjson.dumps(piece)
                    elif not message.answered:
                        early.append(event(piece))  # nothing is answered yet: somebody else may still do it
                    else:
                        if not out.started:
                            await out.begin()
                        await out.piece(b"".join([*early, event(piece)]))
                        early = []
            if out.started and not message.finished:
                raise UpstreamDown("the server ended an answer without saying why")
        except UpstreamBusy as error:
            self._metrics.throttled.inc()
            raise ApiError(429, str(error), code="upstream_busy", retry_after=error.retry_after or 1) from error
        except UpstreamRefused as error:
            raise ApiError(400, str(error), code="upstream_refused") from error
        except UpstreamDown as error:
            if out.started:
                failure = ApiError(502, f"the server failed in the middle of the answer: {error}", code="upstream")
                await out.end(b"data: %b\n\n" % failure.to_json())
            raise
        if not message.answered:
            raise UpstreamDown("the server answered nothing: no choice with a message")
        return message


async def _end(said: SaidText, out: Outgoing) -> None:
    if out.started:
        await out.end(DONE)
    else:
        await out.whole(200, said.whole)
