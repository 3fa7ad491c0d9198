"""Replies in OpenAI's wire format: whole bodies, pieces of a stream, and errors."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import ValidationError
from starlette.types import Send

from learnloop_api.wire.language import ToolCall, Usage
from learnloop_serving.refusal import Refusal

LONGEST = 1000


class ApiError(Exception):
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        param: the field at fault, where one is.
        code: for programs, e.g. context_length_exceeded.
        retry_after: seconds, for the header of that name; 0: none.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str = "", retry_after: int = 0):
        super().__init__(message)
        self.status = status
        self.message = message[:LONGEST]
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """OpenAI's name for the class of errors that the status belongs to."""
        if self.status in (401, 403):
            return "authentication_error" if self.status == 401 else "permission_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def to_json(self) -> bytes:
        """The body."""
        error: dict[str, Any] = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return orjson.dumps({"error": error})


def of_refusal(refusal: Refusal) -> ApiError:
    """The same refusal in OpenAI's shape."""
    return ApiError(refusal.status, refusal.message, code=refusal.reason, retry_after=refusal.retry_after)


def invalid(error: ValidationError) -> ApiError:
    """400 that names the first field that is wrong, its value and what was expected."""
    every = error.errors(include_url=False)
    first = next((one for one in every if one["type"] == "value_error"), every[0])  # of a union, the one that says why
    field = ".".join(str(part) for part in first["loc"]) or None
    text = f"{field or 'body'}: {repr(first.get('input'))[:80]}: {first['msg'].removeprefix('Value error, ')}"
    return ApiError(400, text, param=field, code="invalid_value")


DONE = b"data: [DONE]\n\n"
Finish = Literal["stop", "length", "tool_calls"]


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: %b\n\n" % orjson.dumps(value)


def call(made: ToolCall) -> dict[str, Any]:
    """A tool call as OpenAI writes it."""
    return {"id": made.id, "type": "function", "function": {"name": made.name, "arguments": made.arguments}}


def usage(counted: Usage) -> dict[str, int]:
    """Tokens as OpenAI counts them."""
    wanted, message = counted.prompt_tokens, counted.completion_tokens
    return {"prompt_tokens": wanted, "completion_tokens": message, "total_tokens": wanted + message}


@dataclass(frozen=True, slots=True)
class TokenText:
    """A token as clients are shown it: its text and its log-probability."""

    text: str
    log_prob: float

    def to_chat(self) -> dict[str, Any]:
        """As chat completions have it."""
        octets = list(self.text.encode("utf-8", "replace"))
        return {"token": self.text, "logprob": self.log_prob, "bytes": octets, "top_logprobs": []}


@dataclass(slots=True)
class ChatReply:
    """A chat completion, whole or in pieces; also for /v1/completions (`chat` False)."""

    identity: str
    model: str
    chat: bool = True
    created: int = field(default_factory=lambda: int(time.time()))
    calls: int = 0

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.identity, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return event(self._head(kind) | {"choices": [{"index": 0, "logprobs": None, "finish_reason": None} | choice]})

    def opening(self) -> bytes:
        """The first piece: who speaks."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}) if self.chat else b""

    def piece(self, text: str, tokens: Sequence[TokenText] | None = None) -> bytes:
        """Some text."""
        message: dict[str, Any] = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._chunk(message | self._measured(tokens))

    def called(self, made: ToolCall, tokens: Sequence[TokenText] | None = None) -> bytes:
        """A whole tool call."""
        self.calls += 1
        fields: dict[str, Any] = {"delta": {"tool_calls": [{"index": self.calls - 1} | call(made)]}}
        return self._chunk(fields | self._measured(tokens))

    def end(self, finish: Finish, tokens: Sequence[TokenText] | None = None) -> bytes:
        """The last piece; `tokens`: those that no other piece showed, as the one that ends an answer."""
        message: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        return self._chunk({"finish_reason": finish} | message | self._measured(tokens))

    def _measured(self, tokens: Sequence[TokenText] | None) -> dict[str, Any]:
        return {} if tokens is None else {"logprobs": self._logprobs(tokens)}

    def counted(self, spent: Usage) -> bytes:
        """The piece with the tokens spent, after the last one."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return event(self._head(kind) | {"choices": [], "usage": usage(spent)})

    def whole(
        self,
        text: str,
        calls: Sequence[ToolCall],
        finish: Finish,
        spent: Usage,
        tokens: Sequence[TokenText] | None = None,
    ) -> bytes:
        """The answer in one body."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
        if tokens is not None:
            choice["logprobs"] = self._logprobs(tokens)
        if self.chat:
            fields: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
            choice["message"] = fields | ({"tool_calls": [call(made) for made in calls]} if calls else {})
        else:
            choice["text"] = text
        kind = "chat.completion" if self.chat else "text_completion"
        return orjson.dumps(self._head(kind) | {"choices": [choice], "usage": usage(spent)})

    def _logprobs(self, tokens: Sequence[TokenText]) -> dict[str, Any]:
        if self.chat:
            return {"content": [token.to_chat() for token in tokens], "refusal": None}
        texts, log_probs = [token.text for token in tokens], [token.log_prob for token in tokens]
        return {"tokens": texts, "token_logprobs": log_probs, "top_logprobs": None, "text_offset": []}


class Outgoing:
    """Headers once, then the body, whole or in pieces."""

    def __init__(self, send: Send, headers: dict[str, str] | None = None) -> None:
        self._send = send
        self.headers = headers or {}
        self.started = False
        self.status = 0

    async def whole(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        """The whole answer."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        await self._start(status, {"content-type": kind, "content-length": str(len(body))} | self.headers | more)
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, kind: str = "text/event-stream; charset=utf-8", status: int = 200) -> None:
        """The head of a stream."""
        # Proxies between here and the client must not wait for the end of it.
        plain = {"content-type": kind, "cache-control": "no-cache", "x-accel-buffering": "no"}
        await self._start(status, plain | self.headers)

    async def piece(self, body: bytes) -> None:
        """Some of the stream."""
        if body:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        """The last of it."""
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self.started, self.status = True, status
        listed = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})
