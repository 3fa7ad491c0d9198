"""What is answered: whole bodies and the pieces of a stream, as OpenAI's API reference has them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from learnloop_api.wire.language import ToolCall, Usage

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
    asked, said = counted.prompt_tokens, counted.completion_tokens
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


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
        said: dict[str, Any] = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._chunk(said | self._measured(tokens))

    def called(self, made: ToolCall, tokens: Sequence[TokenText] | None = None) -> bytes:
        """A whole tool call."""
        self.calls += 1
        said: dict[str, Any] = {"delta": {"tool_calls": [{"index": self.calls - 1} | call(made)]}}
        return self._chunk(said | self._measured(tokens))

    def end(self, finish: Finish, tokens: Sequence[TokenText] | None = None) -> bytes:
        """The last piece; `tokens`: those that no other piece showed, as the one that ends an answer."""
        said: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        return self._chunk({"finish_reason": finish} | said | self._measured(tokens))

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
            said: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
            choice["message"] = said | ({"tool_calls": [call(made) for made in calls]} if calls else {})
        else:
            choice["text"] = text
        kind = "chat.completion" if self.chat else "text_completion"
        return orjson.dumps(self._head(kind) | {"choices": [choice], "usage": usage(spent)})

    def _logprobs(self, tokens: Sequence[TokenText]) -> dict[str, Any]:
        if self.chat:
            return {"content": [token.to_chat() for token in tokens], "refusal": None}
        texts, log_probs = [token.text for token in tokens], [token.log_prob for token in tokens]
        return {"tokens": texts, "token_logprobs": log_probs, "top_logprobs": None, "text_offset": []}
