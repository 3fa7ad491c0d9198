"""Tool calls and stop texts in the text of an answer, piece by piece."""

import json
import uuid
from collections.abc import Iterator, Sequence

from learnloop_api.wire.language import MAX_TEXT, ToolCall
from learnloop_gateway import chat_request

BEGIN, END = "<tool_call>", "</tool_call>"
MOST_CALLS = 128


class StopTexts:
    """Lets text pass until one of `stops` is written; its own text is not passed."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """Return the text that may be shown now; none after a stop was `stopped`."""
        if self.stopped or not self._stops:
            return "" if self.stopped else piece
        self._held += piece
        places = [place for place in (self._held.find(stop) for stop in self._stops) if place >= 0]
        if places:
            self.stopped = True
            return self._held[: min(places)]
        remaining = max(_overlap(self._held, stop) for stop in self._stops)
        ready, self._held = self._held[: len(self._held) - remaining], self._held[len(self._held) - remaining :]
        return ready

    def close(self) -> str:
        """Return the text that waited when the model stopped by itself."""
        left, self._held = ("" if self.stopped else self._held), ""
        return left


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)


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
        """Return the text that `piece` completes."""
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
                remaining = _overlap(self._held, BEGIN)
                ready, self._held = self._held[: len(self._held) - remaining], self._held[len(self._held) - remaining :]
                yield from self._say(ready)
                return

    def close(self) -> Iterator[str]:
        """Return the rest when the model stops."""
        left = (BEGIN if self._inside else "") + self._held
        self._held, self._inside = "", False
        for message in self._say(left):
            yield str(message)
        if self._blank and not self.calls:
            blank, self._blank = self._blank, ""
            self.text += blank
            yield blank

    def _say(self, text: str) -> Iterator[str]:
        """Hold back blanks around calls until text follows: they are not content."""
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


def _call(raw: str) -> ToolCall | None:
    try:
        result = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if (
        chat_request.too_deep(result)
        or not isinstance(result, dict)
        or not isinstance(result.get("name"), str)
        or len(result["name"]) > 256
    ):
        return None
    arguments = result.get("arguments", {})
    try:
        # NaN and halves of surrogate pairs have no JSON that a client could read.
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False) if isinstance(arguments, dict) else ""
        f"{result['name']}{text}".encode()
    except (ValueError, RecursionError):
        return None
    if not text or len(text) > MAX_TEXT:
        return None
    return ToolCall(id=f"call_{uuid.uuid4().hex[:24]}", name=result["name"], arguments=text)
