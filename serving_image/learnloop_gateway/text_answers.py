"""One turn by a server of text: handed through, and recorded as text if an arm gave it."""

from contextlib import aclosing
from typing import Any

import orjson

from learnloop_api.wire.base import MOST
from learnloop_gateway import chat_request, model_servers, open_chat, replies, token_answers, tool_calls
from learnloop_gateway.recording import LanguageMetrics, Recording

PATH = "/v1/chat/completions"
OURS = ("metadata", "store")
"""Fields of a request that the gateway alone reads."""


class ServerText:
    """The answer of a server, assembled from the pieces of its stream or from the whole."""

    def __init__(self) -> None:
        self.content = ""
        self.calls: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}
        """Position of the call of each index of the stream."""
        self.usage: dict[str, Any] = {}
        self.whole = b""
        self.answered = False
        """A piece had a choice with a message, empty or not."""
        self.finished = False
        """It is a whole message, or a piece had a finish reason."""

    def take(self, piece: dict[str, Any]) -> None:
        """Add a piece; parts of another shape than OpenAI's are ignored."""
        usage = piece.get("usage")
        self.usage = usage if isinstance(usage, dict) else self.usage
        for choice in _listed(piece.get("choices")):
            if not isinstance(choice, dict):
                continue
            self.answered = self.answered or "message" in choice or "delta" in choice
            self.finished = self.finished or "message" in choice or isinstance(choice.get("finish_reason"), str)
            message = choice.get("message") or choice.get("delta")
            if isinstance(message, dict):
                self.content += str(message.get("content") or message.get("refusal") or "")
                for call in _listed(message.get("tool_calls")):
                    self._call(call)

    def _call(self, call: Any) -> None:
        function = call.get("function") or {} if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return
        index, identity, name = call.get("index"), str(call.get("id") or ""), str(function.get("name") or "")
        place = self._place(index, identity, name)
        if place is None:
            place = len(self.calls)
            if place >= tool_calls.MOST_CALLS:
                return
            self.calls.append({"id": identity, "type": "function", "function": {"name": name, "arguments": ""}})
        if isinstance(index, int):
            self._places[index] = place
        self.calls[place]["function"]["arguments"] += str(function.get("arguments") or "")

    def _place(self, index: Any, identity: str, name: str) -> int | None:
        """The call that a piece continues; None: it begins one. Servers may number every call 0, or none."""
        if identity:
            return next((at for at, call in enumerate(self.calls) if call["id"] == identity), None)
        if isinstance(index, int):
            place = self._places.get(index)
            return None if name and place is not None and self.calls[place]["function"]["arguments"] else place
        return len(self.calls) - 1 if self.calls and not name else None

    def to_message(self) -> dict[str, Any]:
        calls = {"tool_calls": self.calls} if self.calls else {}
        return {"role": "assistant", "content": self.content} | calls

    def tokens(self, name: str) -> int:
        """A count of the server's usage; 0 if it gives none."""
        result = self.usage.get(name)
        return min(result, MOST) if type(result) is int and result >= 0 else 0


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class Relaying:
    """Answers by a server of OpenAI's API."""

    def __init__(self, upstream: model_servers.OpenAiChat, recording: Recording, metrics: LanguageMetrics) -> None:
        self._upstream, self._recording, self._metrics = upstream, recording, metrics

    async def answer(
        self, session: open_chat.Session, request: chat_request.ChatRequest, raw: dict[str, Any], out: replies.Outgoing
    ) -> None:
        """Answer for an arm. Raises as Answering.answer."""
        session.private = session.private or request.store is False
        message = await self._relay(request, raw, out)
        prompt, answer = message.tokens("prompt_tokens"), message.tokens("completion_tokens")
        session.count(prompt, answer, len(message.calls))
        self._metrics.tokens["input"].inc(prompt)
        self._metrics.tokens["output"].inc(answer)
        text = "nothing"
        if self._recording.on and not session.private and not session.named:
            new = open_chat.newest(request.messages) if session.recorded else request.messages
            text = (
                "text"
                if self._recording.turn(session, token_answers.text_step(new, message.to_message()))
                else "nothing"
            )
        self._metrics.turns[text].inc()
        session.turns += 1
        await _end(message, out)

    async def stand_in(self, request: chat_request.ChatRequest, raw: dict[str, Any], out: replies.Outgoing) -> None:
        """Answer by the fallback: counted, and never recorded. Raises as Answering.answer."""
        try:
            message = await self._relay(request, raw, out)
        except (model_servers.UpstreamDown, replies.ApiError):
            self._metrics.fallbacks["failed"].inc()
            raise
        self._metrics.fallbacks["answered"].inc()
        await _end(message, out)

    async def _relay(self, request: chat_request.ChatRequest, raw: dict[str, Any], out: replies.Outgoing) -> ServerText:
        message = ServerText()
        early: list[bytes] = []
        body = {name: value for name, value in raw.items() if name not in OURS}
        try:
            async with aclosing(self._upstream.ask(PATH, body)) as pieces:
                async for piece in pieces:
                    message.take(piece)
                    if not request.stream:
                        message.whole = orjson.dumps(piece)
                    elif not message.answered:
                        early.append(replies.event(piece))  # until there is a choice the fallback may still answer
                    else:
                        if not out.started:
                            await out.begin()
                        await out.piece(b"".join([*early, replies.event(piece)]))
                        early = []
            if out.started and not message.finished:
                raise model_servers.UpstreamDown("the server ended an answer without saying why")
        except model_servers.UpstreamBusy as error:
            self._metrics.throttled.inc()
            raise replies.ApiError(429, str(error), code="upstream_busy", retry_after=error.retry_after or 1) from error
        except model_servers.UpstreamRefused as error:
            raise replies.ApiError(400, str(error), code="upstream_refused") from error
        except model_servers.UpstreamDown as error:
            if out.started:
                failure = replies.ApiError(
                    502, f"the server failed in the middle of the answer: {error}", code="upstream"
                )
                await out.end(b"data: %b\n\n" % failure.to_json())
            raise
        if not message.answered:
            raise model_servers.UpstreamDown("the server answered nothing: no choice with a message")
        return message


async def _end(answer: ServerText, out: replies.Outgoing) -> None:
    if out.started:
        await out.end(replies.DONE)
    else:
        await out.whole(200, answer.whole)
