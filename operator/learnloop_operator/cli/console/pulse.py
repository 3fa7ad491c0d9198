"""Whether the API server answers. A watch that hears nothing cannot tell: it may be away, or the cluster quiet."""

import threading
from collections.abc import Callable

from learnloop_operator.cli.errors import CommandError

BEAT_SECONDS = 1.0


class Pulse:
    """Asks every second, in a thread of its own, and says when the answer is another one."""

    def __init__(self, ask: Callable[[], None], changed: Callable[[], None]) -> None:
        """
        Args:
            ask: raises CommandError where the API server does not answer, after a second or two.
            changed: called when it has gone away, or has come back.
        """
        self._ask, self._changed = ask, changed
        self.away = ""
        """Why nothing can be known now; empty while it answers."""
        self.stopped = threading.Event()

    def start(self) -> None:
        """Begin; the thread does not keep the process alive."""
        threading.Thread(target=self._beat, daemon=True).start()

    def stop(self) -> None:
        """End with the next answer."""
        self.stopped.set()

    def _beat(self) -> None:
        while not self.stopped.wait(BEAT_SECONDS):
            try:
                self._ask()
                said = ""
            except Exception as error:
                # Whatever it is, nothing is known; a thread that ended would leave the pages as they are.
                said = str(error) if isinstance(error, CommandError) else repr(error)
            if bool(said) != bool(self.away):
                self.away = said
                self._changed()
