"""Replies in OpenAI's wire format: whole bodies, pieces of a stream, and errors."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import ValidationError
from starlette.types import Send

from learnloop_api.wire.language import ToolCall, Usage
from learnloop_serving.refusals import Refusal, first_error

LONGEST = 1000


class ApiError(Exception):
    """A refused request.

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
        error: dict[str, Any] = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return orjson.dumps({"error": error})


def of_refusal(refusal: Refusal) -> ApiError:
    return ApiError(refusal.status, refusal.message, code=refusal.reason, retry_after=refusal.retry_after)


def invalid(error: ValidationError) -> ApiError:
    """400 that names the first invalid field, its value and the fix."""
    field, text = first_error(error)
    return ApiError(400, text, param=field or None, code="invalid_value")


DONE = b"data: [DONE]\n\n"
Finish = Literal["stop", "length", "tool_calls"]


def event(value: Any) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(value)


def call(made: ToolCall) -> dict[str, Any]:
    """A tool call as OpenAI writes it."""
    return {"id": made.id, "type": "function", "function": {"name": made.name, "arguments": made.arguments}}


def usage(counted: Usage) -> dict[str, int]:
    prompt, answer = counted.prompt_tokens, counted.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


CHUNK, WHOLE = "chat.completion.chunk", "chat.completion"


@dataclass(slots=True)
class ChatReply:
    """A chat completion, whole or in pieces. `counts`: each piece has its usage, null before the last."""

    identity: str
    model: str
    counts: bool
    created: int = field(default_factory=lambda: int(time.time()))
    calls: int = 0

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.identity, "object": kind, "created": self.created, "model": self.model, "choices": choices}

    def _chunk(self, delta: dict[str, Any], finish: Finish | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event(self._body(CHUNK, [choice]) | ({"usage": None} if self.counts else {}))

    def opening(self) -> bytes:
        """The first piece, with the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, shown: str | ToolCall) -> bytes:
        """Some text, or a whole tool call."""
        if isinstance(shown, str):
            return self._chunk({"content": shown})
        self.calls += 1
        return self._chunk({"tool_calls": [{"index": self.calls - 1} | call(shown)]})

    def end(self, finish: Finish) -> bytes:
        return self._chunk({}, finish)

    def counted(self, spent: Usage) -> bytes:
        """The piece with the tokens spent, after the last one, where they are asked for."""
        return event(self._body(CHUNK, []) | {"usage": usage(spent)}) if self.counts else b""

    def whole(self, text: str, calls: Sequence[ToolCall], finish: Finish, spent: Usage) -> bytes:
        """The answer in one body."""
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
        if calls:
            message["tool_calls"] = [call(made) for made in calls]
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return orjson.dumps(self._body(WHOLE, [choice]) | {"usage": usage(spent)})


class Outgoing:
    """Headers once, then the body, whole or in pieces."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.headers: dict[str, str] = {}
        self.started = False
        self.status = 0

    async def whole(self, status: int, body: bytes, kind: str = "application/json") -> None:
        await self._start(status, {"content-type": kind, "content-length": str(len(body))} | self.headers)
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, kind: str = "text/event-stream; charset=utf-8", status: int = 200) -> None:
        # Proxies between here and the client must not wait for the end of it.
        plain = {"content-type": kind, "x-accel-buffering": "no"}
        await self._start(status, plain | self.headers)

    async def piece(self, body: bytes) -> None:
        if body:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self.started, self.status = True, status
        listed = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})
