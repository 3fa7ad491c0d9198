"""Texts that end an answer: what might be the beginning of one waits."""

from collections.abc import Sequence


class StopTexts:
    """Lets text pass until one of `stops` is written; its own text is not passed."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found = False

    def feed(self, piece: str) -> str:
        """What may be shown now. Once a stop was `found`, nothing more is."""
        if self.found or not self._stops:
            return "" if self.found else piece
        self._held += piece
        places = [place for place in (self._held.find(stop) for stop in self._stops) if place >= 0]
        if places:
            self.found = True
            return self._held[: min(places)]
        kept = max(_overlap(self._held, stop) for stop in self._stops)
        ready, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return ready

    def close(self) -> str:
        """What waited when the model stopped by itself."""
        left, self._held = ("" if self.found else self._held), ""
        return left


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
