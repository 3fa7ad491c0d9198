"""Turns of an agent that works by a language model: messages, tool calls and tokens as steps of an episode."""

from collections.abc import Mapping, Sequence
from typing import Any

from learnloop_sdk.episode import Episode
from learnloop_sdk.trajectory import plain

# What providers call the two counts, in the order of the Chat Completions and the Messages API.
_USAGE = {"input_tokens": ("prompt_tokens", "input_tokens"), "output_tokens": ("completion_tokens", "output_tokens")}


class Conversation:
    """Records each call of a model within an episode.

        async with loop.episode(task, external=True, revision="assistant-7") as episode:
            conversation = Conversation(episode)
            reply = await model(messages)
            conversation.turn(messages, reply.message, usage=reply.usage)

    A step's observation is `{"messages": […]}` with the messages that are new since the turn before, results of tools
    among them; its action is the reply, tool calls included. The outcome values `turns`, `tool_calls`, `tool_errors`,
    `input_tokens` and `output_tokens` grow along, for a RewardPolicy to use.
    """

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._known: list[Any] = []
        self._totals = dict.fromkeys(("turns", "tool_calls", "tool_errors", *_USAGE), 0.0)

    def turn(
        self,
        messages: Sequence[Any],
        reply: Any,
        *,
        usage: Any = None,
        reward: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
    ) -> None:
        """One call of the model.

        Args:
            messages: the whole conversation that was sent: mappings, or objects with `model_dump` as the providers'
                packages have them.
            reply: the message that came back; its `tool_calls`, or content blocks of type `tool_use`, are counted.
            usage: the provider's count of tokens.
            reward: for this turn, where something other than the RewardPolicy gives one.
            terminated: the task ended here; truncated: a limit ended it here.
        """
        sent, said = [_plain(message) for message in messages], _plain(reply)
        new = sent[_common(self._known, sent) :]
        self._known = [*sent, said]
        self._count(new, said, _plain(usage) if usage is not None else {})
        action = said if isinstance(said, dict) else {"content": said}
        self._episode.record(action, reward, terminated, truncated, observation={"messages": new})
        self._episode.outcome(None, **self._totals)

    def _count(self, new: list[Any], said: Any, usage: Any) -> None:
        self._totals["turns"] += 1
        self._totals["tool_calls"] += _tool_calls(said)
        self._totals["tool_errors"] += sum(map(_tool_errors, new))
        for name, theirs in _USAGE.items():
            found = next((usage[key] for key in theirs if isinstance(usage, dict) and key in usage), 0)
            self._totals[name] += float(found) if isinstance(found, int | float) else 0.0


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return plain(value)


def _common(known: list[Any], sent: list[Any]) -> int:
    """How many messages were there at the turn before, its reply included."""
    count = 0
    for one, other in zip(known, sent, strict=False):
        if one != other:
            break
        count += 1
    return count


def _blocks(message: Any, kind: str) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return (
        [part for part in content if isinstance(part, dict) and part.get("type") == kind]
        if isinstance(content, list)
        else []
    )


def _tool_calls(message: Any) -> int:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return (len(calls) if isinstance(calls, list) else 0) + len(_blocks(message, "tool_use"))


def _tool_errors(message: Any) -> int:
    return sum(bool(block.get("is_error")) for block in _blocks(message, "tool_result"))
