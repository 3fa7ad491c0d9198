"""An answer while its tokens arrive: its text, its tool calls and why it ended."""

import time
from collections.abc import Sequence

from learnloop_api.wire.language import ToolCall
from learnloop_gateway.openai_api.replies import Finish, TokenText
from learnloop_gateway.tokens.chat_template import ChatTokens
from learnloop_gateway.tokens.stop_texts import StopTexts
from learnloop_gateway.tokens.tool_calls import ToolCallReader
from learnloop_gateway.upstreams.port import Drawn

Shown = list[str | ToolCall]


class DrawnAnswer:
    """Tokens as they were drawn, and what a client is shown of them."""

    def __init__(self, tokens: ChatTokens, *, tools: bool, stops: Sequence[str], shows_tokens: bool) -> None:
        self._tokens = tokens
        self._text = tokens.stream()
        self._stops = StopTexts(stops)
        self._reader = ToolCallReader(tools)
        self.shows_tokens = shows_tokens
        self._finish: Finish | None = None
        self._began = time.perf_counter()
        self._lost = False
        self.first_seconds: float | None = None
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.token_texts: list[TokenText] = []

    @property
    def stopped(self) -> bool:
        """A text that ends the answer was written: no more tokens are wanted."""
        return self._stops.found

    @property
    def cut(self) -> bool:
        """The client was shown less than the tokens say."""
        return self._stops.found

    @property
    def ended(self) -> bool:
        """The last token is one that ends an answer."""
        return bool(self.ids) and self.ids[-1] in self._tokens.stops

    @property
    def complete(self) -> bool:
        """The server said why it stopped, or was told to."""
        return self._finish is not None or self.stopped

    @property
    def measured(self) -> bool:
        """Each token has the probability it was drawn with, and none is missing."""
        return not self._lost and len(self.ids) == len(self.log_probs) > 0

    @property
    def text(self) -> str:
        """What the client was shown, without its calls."""
        return self._reader.text

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls the client was shown."""
        return self._reader.calls

    @property
    def finish(self) -> Finish:
        """Why it ended, in OpenAI's words."""
        if self._finish == "length" and not self.stopped:
            return "length"
        return "tool_calls" if self.calls else "stop"

    def take(self, drawn: Drawn) -> Shown:
        """More tokens; returns what they show."""
        if drawn.ids and self.first_seconds is None:
            self.first_seconds = time.perf_counter() - self._began
        shown: Shown = []
        for place, one in enumerate(drawn.ids):
            self.ids.append(one)
            if drawn.log_probs is not None:
                self.log_probs.append(drawn.log_probs[place])
                if self.shows_tokens:
                    self.token_texts.append(TokenText(self._tokens.word(one), drawn.log_probs[place]))
            if text := self._stops.feed(self._text.step(one)):
                shown += self._reader.feed(text)
            if self.stopped:
                break
        if drawn.finish is not None:
            self._finish = drawn.finish
        # A server that sends no piece for half a character sends no token for it either.
        if drawn.total is not None and drawn.total != len(self.ids):
            self._lost = True
        return shown

    def close(self) -> Shown:
        """What waited for more that never came."""
        return [*self._reader.feed(self._stops.close()), *self._reader.close()]
