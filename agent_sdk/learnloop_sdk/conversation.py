"""Turns of an agent that works by a language model: messages, tool calls and tokens as steps of an episode."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from learnloop_sdk.episode import Episode
from learnloop_sdk.trajectory_encoding import plain

# Names of the two counts in the Chat Completions and the Messages API.
_USAGE = {"input_tokens": ("prompt_tokens", "input_tokens"), "output_tokens": ("completion_tokens", "output_tokens")}


class Conversation:
    """Records each call of a model within an episode.

        async with loop.episode(task, external=True, revision="assistant-7") as episode:
            conversation = Conversation(episode)
            reply = await model(messages)
            conversation.turn(messages, reply.message, usage=reply.usage)

    A step's observation is `{"messages": […]}` with the messages since the previous turn, tool results included; its
    action is the reply, tool calls included. A RewardPolicy can use the outcome values `turns`, `tool_calls`,
    `tool_errors`, `input_tokens` and `output_tokens`.
    """

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._history: list[Any] = []
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
        """Record one call of the model.

        Args:
            messages: the whole conversation that was sent: mappings, or objects with `model_dump`.
            reply: the answer; its `tool_calls`, or content blocks of type `tool_use`, are counted.
            usage: the provider's count of tokens.
            reward: for this turn, in addition to the RewardPolicy's.
            terminated: the task ended here; truncated: a limit ended it here.
        """
        sent, answer = [_plain(message) for message in messages], _plain(reply)
        pairs = zip(self._history, sent, strict=False)
        new = sent[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :]
        self._history = [*sent, answer]
        self._count(new, answer, _plain(usage) if usage is not None else {})
        action = answer if isinstance(answer, dict) else {"content": answer}
        self._episode.record(action, reward, terminated, truncated, observation={"messages": new})
        self._episode.outcome(None, **self._totals)

    def _count(self, new: list[Any], answer: Any, usage: Any) -> None:
        calls = answer.get("tool_calls") if isinstance(answer, dict) else None
        results = [block for message in new for block in _blocks(message, "tool_result")]
        self._totals["turns"] += 1
        self._totals["tool_calls"] += len(calls if isinstance(calls, list) else []) + len(_blocks(answer, "tool_use"))
        self._totals["tool_errors"] += sum(bool(block.get("is_error")) for block in results)
        for name, keys in _USAGE.items():
            count = next((usage[key] for key in keys if isinstance(usage, dict) and key in usage), 0)
            self._totals[name] += float(count) if isinstance(count, int | float) else 0.0


def _plain(value: Any) -> Any:
    """Convert to JSON types."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return plain(value)


def _blocks(message: Any, kind: str) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") == kind]
