"""Two processes that ask one another over two pipes: the tests' and the judged code's. Who is asked may ask, too.

Neither trusts the other. A message is JSON with its length; what is no answer ends the conversation.
"""

import json
import os
import threading
from collections.abc import Callable
from typing import Any

from learnloop_dataplane.sandbox.values import Exchange, Far, Raised

LONGEST = 2**25
"""Bytes of one message."""
MOST_PRINTED = 2**16


class Gone(BaseException):
    """The other side ended, or speaks no protocol. No Exception, so no test takes it for one that it expects."""


class Peer:
    """One end.

    Args:
        reading: file descriptor of what the other side says.
        writing: of what it hears.
        far: what stands for the other side's things.
        raised: how exceptions travel.
        answer: does what is asked of this side: a word and its arguments.
        printed: what was printed here since it was asked last.
        show: prints here what was printed there.
    """

    def __init__(
        self,
        reading: int,
        writing: int,
        far: Far,
        raised: Raised,
        answer: Callable[..., Any],
        printed: Callable[[], str] = str,
        show: Callable[[str], object] = len,
    ) -> None:
        self._in, self._out = os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
        self._far, self._raised, self._answer = far, raised, answer
        self._printed, self._show = printed, show
        self._lock = threading.RLock()

    def ask(self, word: str, *arguments: Any) -> Any:
        """What the other side answers.

        Raises:
            BaseException: what was raised there.
            Gone: it answers no more.
        """
        with self._lock:
            exchange = Exchange(self._far)
            self._send(["ask", word, [exchange.write(item) for item in arguments]])
            exchange.asked()
            while True:
                message = self._receive()
                if message is None:
                    raise Gone("the code ended")
                try:
                    what, *rest = message
                    if what != "ask":
                        ok, said, contents, printed = rest
                        self._show(str(printed)[:MOST_PRINTED])
                        found = exchange.read(said) if ok else self._raised.read(exchange, said)
                        exchange.renew(contents)
                        break
                    word, arguments = rest
                except Exception as error:
                    raise Gone(f"the code spoke no protocol ({type(error).__name__})") from None
                self._serve(word, arguments)
            if ok:
                return found
            raise found

    def serve(self) -> None:
        """Answers until the other side ends."""
        while (message := self._receive()) is not None:
            self._serve(*message[1:])

    def _serve(self, word: str, arguments: Any) -> None:
        exchange = Exchange(self._far)
        try:
            try:
                read = [exchange.read(item) for item in arguments]
                exchange.asked()
                reply = [True, exchange.write(self._answer(word, *read)), exchange.contents()]
            except Gone:
                raise
            except BaseException as error:  # SystemExit too: whatever is raised here is the other side's to judge
                reply = [False, self._raised.write(exchange, error), exchange.contents()]
        except (TypeError, RecursionError) as error:
            reply = [False, [["shared", "builtins", type(error).__name__], [str(error)[:1000]], []], []]
        self._send(["answer", *reply, self._printed()[:MOST_PRINTED]])

    def _send(self, message: list[Any]) -> None:
        written = json.dumps(message).encode()
        try:
            self._out.write(b"%d\n%b" % (len(written), written))
            self._out.flush()
        except OSError:
            raise Gone("the code ended") from None

    def _receive(self) -> list[Any] | None:
        """None: it ended."""
        head = self._in.readline(20)
        if not head:
            return None
        try:
            size = int(head)
            if not 0 <= size <= LONGEST:
                raise ValueError("too long")
            found = json.loads(self._in.read(size))
        except (ValueError, RecursionError, MemoryError) as error:
            raise Gone(f"the code spoke no protocol ({type(error).__name__})") from None
        if not isinstance(found, list) or not found:
            raise Gone("the code spoke no protocol")
        return found
