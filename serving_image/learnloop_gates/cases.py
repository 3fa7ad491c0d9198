"""What a suite asks and what it gets: cases, replies, and examples with a label."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants called; `arguments` as it wrote them, which may be no JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    tokens: int = 0
    """Tokens that were sampled, as the server says."""
    cut: bool = False
    """It ended because it was as long as an answer may be."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to ask. `facts`: what tells a failure, e.g. the planted secret."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> str:
        """What was said last, in words."""
        return str(self.messages[-1].get("content") or "")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A case and a reply of which a person has said whether it fails."""

    case: Case
    reply: Reply
    fails: bool


def said(text: str, system: str = "") -> tuple[Message, ...]:
    """The messages of a question, after a system prompt where there is one."""
    question = {"role": "user", "content": text}
    return ({"role": "system", "content": system}, question) if system else (question,)
