"""Tool calls in what a model writes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (Hermes; Qwen's too).

What is no such call stays text, so that the client sees what the model wrote and sends it back unchanged.
"""

import json
import uuid
from collections.abc import Iterator

from learnloop_api.wire.language import MAX_TEXT, ToolCall
from learnloop_gateway.openai_api.requests import too_deep

BEGIN, END = "<tool_call>", "</tool_call>"
MOST_CALLS = 128


class ToolCallReader:
    """Reads text piece by piece; gives text and whole calls in their order.

    Args:
        on: False where the request offers no tools: then all is text.
    """

    def __init__(self, on: bool) -> None:
        self._on = on
        self._held = ""
        self._inside = False
        self._blank = ""
        self.text = ""
        self.calls: list[ToolCall] = []

    def feed(self, piece: str) -> Iterator[str | ToolCall]:
        """What `piece` completes."""
        if not self._on:
            yield from self._say(piece)
            return
        self._held += piece
        while self._held:
            if self._inside:
                if END not in self._held:
                    return
                raw, _, self._held = self._held.partition(END)
                self._inside = False
                yield from self._read(raw)
            elif BEGIN in self._held:
                before, _, self._held = self._held.partition(BEGIN)
                self._inside = True
                yield from self._say(before)
            else:
                kept = _beginning(self._held)
                ready, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
                yield from self._say(ready)
                return

    def close(self) -> Iterator[str]:
        """What is left when the model stops."""
        left = (BEGIN if self._inside else "") + self._held
        self._held, self._inside = "", False
        for said in self._say(left):
            yield str(said)
        if self._blank and not self.calls:
            blank, self._blank = self._blank, ""
            self.text += blank
            yield blank

    def _say(self, text: str) -> Iterator[str]:
        """Blanks around calls are no content: they wait until text follows them."""
        if not text:
            return
        if self._on:
            text = self._blank + text
            body = text.rstrip()
            self._blank = text[len(body) :]
            if self.calls and not self.text:
                body = body.lstrip()
            text = body
        if text:
            self.text += text
            yield text

    def _read(self, raw: str) -> Iterator[str | ToolCall]:
        call = _call(raw)
        if call is None or len(self.calls) >= MOST_CALLS:
            yield from self._say(f"{BEGIN}{raw}{END}")
            return
        self.calls.append(call)
        yield call


def _beginning(text: str) -> int:
    """How many characters at the end of `text` may begin a call."""
    return next((size for size in range(min(len(text), len(BEGIN) - 1), 0, -1) if BEGIN.startswith(text[-size:])), 0)


def _call(raw: str) -> ToolCall | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if (
        too_deep(found)
        or not isinstance(found, dict)
        or not isinstance(found.get("name"), str)
        or len(found["name"]) > 256
    ):
        return None
    arguments = found.get("arguments", {})
    try:
        # What no client could read as JSON, or no wire carry, is no call: NaN, and halves of surrogate pairs.
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False) if isinstance(arguments, dict) else ""
        f"{found['name']}{text}".encode()
    except (ValueError, RecursionError):
        return None
    if not text or len(text) > MAX_TEXT:
        return None
    return ToolCall(id=f"call_{uuid.uuid4().hex[:24]}", name=found["name"], arguments=text)
