"""Requests: the body of /v1/chat/completions, bounded.

A field of the request or of a tool is obeyed or refused by name: ignoring it would change the answer.
A value that asks for nothing is accepted. Unknown fields of messages are ignored, as OpenAI does: clients send answers
back with all their fields.
"""

import json
from functools import cached_property
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from learnloop_api.wire import base, language
from learnloop_gateway.replies import ApiError, invalid

MAX_TOOLS = 128
Text = Annotated[str, Field(max_length=language.MAX_TEXT)]
Short = Annotated[str, Field(max_length=256)]
_NEUTRAL: dict[str, Any] = {
    "frequency_penalty": 0,
    "function_call": "auto",
    "ignore_eos": False,
    "logit_bias": {},
    "logprobs": False,
    "min_p": 0,
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "reasoning_effort": "none",
    "repetition_penalty": 1,
    "response_format": {"type": "text"},
    "service_tier": "auto",
    "skip_special_tokens": True,
    "strict": False,
    "top_logprobs": 0,
    "verbosity": "medium",
}
"""Values that ask for nothing, of fields that are not supported."""
_HARMLESS = {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "cache_control", "include_obfuscation"}
"""Fields that change no answer."""
MOST_DEPTH = 64


def _asks_for_nothing(name: str, value: Any) -> bool:
    neutral = _NEUTRAL.get(name)
    same = value == neutral and isinstance(value, bool) is isinstance(neutral, bool)
    return value is None or value == "" or value == [] or same


class _Obeyed(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _all_obeyed(cls, given: Any) -> Any:
        """Raises ValueError for a field that is not obeyed."""
        if not isinstance(given, dict):
            return given
        for name in given.keys() - cls.model_fields.keys() - _HARMLESS:
            if not _asks_for_nothing(name, given[name]):
                raise ValueError(f"{name} is {str(given[name])[:80]!r}, which is not supported here: leave it out")
        return given


class _Spoken(BaseModel):
    """A part of the history."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Function(_Spoken):
    """A call as OpenAI writes it: the arguments are text."""

    name: Short
    arguments: Text = ""


class Call(_Spoken):
    """A tool call of an earlier answer."""

    id: Short = ""
    type: Literal["function"] = "function"
    function: Function


class TextPart(_Spoken):
    """A piece of a message; images and sound are refused."""

    type: Literal["text"]
    text: Text


class ChatMessage(_Spoken):
    """One message of the history."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    name: Short | None = None
    content: Text | Annotated[list[TextPart], Field(max_length=1024)] | None = None
    tool_calls: Annotated[list[Call], Field(max_length=MAX_TOOLS)] | None = None
    tool_call_id: Short | None = None

    @cached_property
    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content)

    @property
    def texts(self) -> list[str]:
        """All written text: the content, and the arguments of calls."""
        return [self.text, *(call.function.arguments for call in self.tool_calls or ())]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal messages: a client may reformat the JSON of a call, but not change the call."""
        calls = tuple(
            (call.id, call.function.name, canonical(call.function.arguments)) for call in self.tool_calls or ()
        )
        return (self.role, self.text, calls, self.tool_call_id)

    def to_template(self) -> dict[str, Any]:
        """The message as chat templates read it: arguments are an object."""
        fields: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": self.text}
        if self.tool_calls:
            fields["tool_calls"] = [
                {
                    "type": "function",
                    "id": call.id,
                    "function": {"name": call.function.name, "arguments": _object(call.function.arguments)},
                }
                for call in self.tool_calls
            ]
        fields |= {"tool_call_id": self.tool_call_id} if self.tool_call_id else {}
        fields |= {"name": self.name} if self.name else {}
        return fields


def canonical(arguments: str) -> str:
    """The JSON of a call's arguments in one form; other text as it is."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _object(arguments: str) -> Any:
    try:
        result = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return arguments if too_deep(result) else result


class FunctionSchema(_Obeyed):
    """A function that may be called."""

    name: Short
    description: Text | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


class Tool(_Obeyed):
    """A tool of the request."""

    type: Literal["function"]
    function: FunctionSchema


class StreamOptions(_Obeyed):
    """Of a stream."""

    include_usage: bool = False


class ChatRequest(_Obeyed):
    """POST /v1/chat/completions"""

    messages: list[ChatMessage] = Field(min_length=1, max_length=language.MAX_TURNS)
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Any = None
    model: Short
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=language.MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=language.MAX_TOKENS)] | None = None
    stop: Short | Annotated[list[Annotated[Short, Field(min_length=1)]], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-base.MOST, le=base.MOST)] | None = None
    user: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
        ]
        | None
    ) = None
    store: bool | None = Field(default=None, description="false: this turn is answered and not recorded")

    @property
    def counts(self) -> bool:
        """A stream says how many tokens were spent."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def most(self) -> int | None:
        """Tokens of the answer at most; None: not set."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def stops(self) -> list[str]:
        if not self.stop:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)

    @model_validator(mode="after")
    def _obeyed(self) -> "ChatRequest":
        if self.tool_choice not in (None, "auto", "none"):
            raise ValueError("tool_choice other than auto and none is not supported here: leave it out")
        if self.messages[-1].role == "assistant":
            raise ValueError("messages end with the assistant's own: add a message that it answers")
        return self

    @cached_property
    def offered(self) -> list[dict[str, Any]]:
        """The tools the model is shown."""
        if not self.tools or self.tool_choice == "none":
            return []
        return [tool.model_dump(mode="json", exclude_none=True) for tool in self.tools]


def read_chat(body: bytes) -> ChatRequest:
    """The request in `body`; raises ApiError 400."""
    try:
        return ChatRequest.model_validate(_parsed(body))
    except ValidationError as error:
        raise invalid(error) from None


def _parsed(body: bytes) -> Any:
    try:
        result = orjson.loads(body)
    except ValueError as error:
        raise ApiError(400, f"body: not JSON: {error}"[:300], code="invalid_json") from None
    deep = next((name for name in result if too_deep(result[name])), None) if isinstance(result, dict) else None
    if deep is not None:
        text = f"{deep}: is nested more than {MOST_DEPTH} levels deep: make it flatter"
        raise ApiError(400, text[:300], param=deep[:64], code="invalid_value")
    return result


def too_deep(value: Any) -> bool:
    """Does a JSON value nest more than MOST_DEPTH levels? Its readers recurse for each level."""
    level = [value]
    for _ in range(MOST_DEPTH):
        nested = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [inner for one in nested for inner in one]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)
