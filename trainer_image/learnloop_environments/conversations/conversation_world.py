"""A world for a language model: it begins conversations, answers messages, and rewards them.

The shape follows the `verifiers` library: a class with tools and tasks, so that an environment of that kind needs a few
lines to become one of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from learnloop_environments.randomness import Split


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: `arguments` is the JSON object the model wrote, read."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    Attributes:
        malformed: the model tried to call a tool and wrote something else; never set on what a world says.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: Sequence[ToolCall] = field(default=())
    malformed: bool = False

    def to_template(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
                for call in self.tool_calls
            ]
        return message


class Conversation(Protocol):
    """One conversation under way.

    Attributes:
        opening: what stands before the model's first turn.
        done: nothing more is asked of the model.
        reward: what the conversation was worth so far, as a sum.
        success: whether the task is solved; None where unknown, or not yet.
    """

    opening: Sequence[Message]
    done: bool
    reward: float
    success: bool | None

    def reply(self, message: Message) -> Sequence[Message]:
        """Take the model's message; returns what the world says next, nothing where `done` is now True."""


class ConversationWorld(Protocol):
    """A family of numbered tasks. The same split, seed and number begin the same conversation, in every process."""

    tools: Sequence[Mapping[str, Any]]  # JSON schemas, as the Chat Completions API takes them

    def begin(self, split: Split, seed: int, number: int) -> Conversation:
        """Begin the task with this number."""
