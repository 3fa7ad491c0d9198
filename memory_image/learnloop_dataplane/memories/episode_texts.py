"""Describes an episode of text in a few lines: words and actions. Pure.

Numbers say nothing to somebody who searches by words: of steps that are numbers there is none. System messages are left
out: they hold what the agent was told before, its recalled memories among them, and a memory made of recalled ones
would come back as if it had happened again.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

MOST = 2000  # characters in all: a memory is searched as a whole
EACH = 400  # of one utterance
_UNTOLD = frozenset({"system", "developer"})


def said_and_done(steps: Sequence[Any]) -> str:
    """A line for each utterance, call and result; where they are too many, the first and the last.

    Args:
        steps: of `wire.Step`, as JSON; those of another shape say nothing.
    """
    lines = [line for step in steps if isinstance(step, dict) for line in _of_step(step)]
    if sum(len(line) + 1 for line in lines) <= MOST:
        return "\n".join(lines)
    first: list[str] = []
    last: list[str] = []
    room = MOST - 2
    # What was asked comes first and what came of it last: of both as much as of the other.
    for place in range(len(lines)):
        at_the_end = place % 2 == 1
        line = lines[-1 - place // 2] if at_the_end else lines[place // 2]
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        (last if at_the_end else first).append(line)
    return "\n".join([*first, "…", *reversed(last)])


def _of_step(step: dict[str, Any]) -> Iterator[str]:
    seen, done = step.get("observation"), step.get("action")
    if isinstance(seen, dict) and isinstance(seen.get("messages"), list):
        for message in seen["messages"]:
            yield from _of_message(message, "user")
    elif text := _text(seen):
        yield f"saw: {text}"
    if isinstance(done, dict) and ("content" in done or "tool_calls" in done):
        yield from _of_message(done, "assistant")
    elif text := _text(done):
        yield f"did: {text}"


def _of_message(message: Any, speaker: str) -> Iterator[str]:
    if not isinstance(message, dict):
        return
    role = str(message.get("role") or speaker)[:32]
    if role in _UNTOLD:
        return
    if text := _text(message.get("content")):
        yield f"{role}: {text}"
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and function.get("name"):
            arguments = _text(function.get("arguments"))
            yield f"{role} called {_cut(str(function['name']) + ' ' + arguments)}"


def _text(value: Any) -> str:
    """One line of at most 400 characters; nothing of numbers."""
    if isinstance(value, list):  # a message in parts, each with its text; or numbers
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return _cut(" ".join(part for part in parts if isinstance(part, str)))
    if isinstance(value, dict):
        known = next((value[name] for name in ("text", "content") if isinstance(value.get(name), str)), None)
        return _cut(known if known is not None else json.dumps(value, ensure_ascii=False)) if value else ""
    return _cut(value) if isinstance(value, str) else ""


def _cut(text: str) -> str:
    line = " ".join(text[: 4 * EACH].split())
    return line if len(line) <= EACH else line[: EACH - 1] + "…"
