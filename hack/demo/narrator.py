"""Prints the story: one line a happening, with the time since the start."""

import time

from toolkit.errors import Refusal


class StoryFailedError(Refusal):
    """A part of the story did not happen; the message says which and what was seen instead."""


class Narrator:
    """Says each thing once. Lines go to standard output immediately, so a pipe shows progress too.

    Attributes:
        newest: the moment of the newest line of any narrator, by time.monotonic().
    """

    newest = 0.0

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._last: dict[str, str] = {}

    def elapsed(self) -> float:
        """Seconds since the story began."""
        return time.monotonic() - self.started

    def chapter(self, title: str) -> None:
        """Opens a new part of the story."""
        print(f"\n{title}\n{'─' * len(title)}", flush=True)

    def say(self, sentence: str) -> None:
        """One line."""
        Narrator.newest = time.monotonic()
        minutes, seconds = divmod(int(self.elapsed()), 60)
        print(f"  {minutes:2d}:{seconds:02d}  {sentence}", flush=True)

    def on_change(self, topic: str, sentence: str) -> None:
        """Says the sentence unless it is what was said last on this topic."""
        if self._last.get(topic) != sentence:
            self._last[topic] = sentence
            self.say(sentence)
