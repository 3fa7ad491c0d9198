"""The process in which judged code runs, and nothing else: it is asked for values, and never learns what is expected.

Started by `limited_run` with nothing of its environment and no pipe but the tests'. Whatever happens here is the judged
code's: it may end, hang, or answer what it likes.
"""

import io
import operator
import os
import sys
import types
from typing import Any

from learnloop_dataplane.sandbox.confinement import confine
from learnloop_dataplane.sandbox.peer import Peer
from learnloop_dataplane.sandbox.values import Raised, said

NAME = "solution"
OTHERS = "_of_the_tests"
BUILT_IN: dict[str, Any] = {
    own.__name__: own for own in (iter, next, len, repr, str, hash, bool, float, int, round, format, reversed, divmod)
}
PLAIN = (int, float, complex, str, bytes, tuple, frozenset, list, set, dict)


class Lent:
    """The code's objects by number, and the tests' functions that it may call."""

    def __init__(self) -> None:
        self.peer: Peer
        self.raised = Raised(self, self._key)
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._kinds: dict[int, type[BaseException]] = {}

    def number(self, value: Any) -> int:
        """Of an object, for as long as this process runs."""
        if id(value) not in self._numbers:
            self.objects.append(value)
            self._numbers[id(value)] = len(self.objects) - 1
        return self._numbers[id(value)]

    def lend(self, value: Any) -> Any:
        """A number. Of what stands for the tests' function: that function's."""
        own = getattr(value, OTHERS, None)
        if isinstance(own, int):
            return ["back", own]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["raisable", self.raised.kind(value)]
        return ["object", self.number(value), isinstance(value, types.CoroutineType)]

    def borrow(self, written: list[Any]) -> Any:
        """An own object again, or what asks the tests' function."""
        what, number = written
        if what == "object":
            return self.objects[number]
        if what == "raisable":
            return self.raised.read_kind(number)

        def call(*arguments: Any, **named: Any) -> Any:
            return self.peer.ask("call", number, arguments, tuple(named.items()))

        setattr(call, OTHERS, number)
        return call

    def kind_of(self, name: str, key: int, bases: tuple[type[BaseException], ...]) -> type[BaseException]:
        """The tests' exception; a negative key is one of the code's own."""
        if key < 0:
            own = self.objects[-1 - key]
            assert isinstance(own, type)
            return own
        if key not in self._kinds:
            self._kinds[key] = type(name, bases, {OTHERS: key, "__str__": said})
        return self._kinds[key]

    def _key(self, kind: type) -> int:
        own = vars(kind).get(OTHERS)
        return -1 - own if isinstance(own, int) else self.number(kind)

    def answer(self, word: str, *arguments: Any) -> Any:
        """Does what the tests ask."""
        return getattr(self, f"_{word}")(*arguments)

    def _load(self, source: str) -> Any:
        module = types.ModuleType(NAME)
        sys.modules[NAME] = module
        exec(compile(source, f"{NAME}.py", "exec"), module.__dict__)
        return module

    def _names(self, module: Any) -> Any:
        return tuple(getattr(module, "__all__", None) or (name for name in vars(module) if name[0] != "_"))

    def _get(self, value: Any, name: str) -> Any:
        return getattr(value, name)

    def _put(self, value: Any, name: str, other: Any) -> None:
        setattr(value, name, other)

    def _drop(self, value: Any, name: str) -> None:
        delattr(value, name)

    def _call(self, value: Any, arguments: Any, named: Any) -> Any:
        return value(*arguments, **dict(named))

    def _do(self, name: str, *arguments: Any) -> Any:
        return (BUILT_IN.get(name) or getattr(operator, name))(*arguments)

    def _isinstance(self, value: Any, kind: Any) -> bool:
        return isinstance(value, kind)

    def _issubclass(self, value: Any, kind: Any) -> bool:
        return issubclass(value, kind)

    def _plain(self, value: Any) -> Any:
        """The data that an object of a subclass of it is; NotImplemented: it is none."""
        base = next((base for base in PLAIN if isinstance(value, base)), None)
        return NotImplemented if base is None else base(value)

    def _enter(self, value: Any) -> Any:
        return type(value).__enter__(value)

    def _exit(self, value: Any, kind: Any, text: str) -> Any:
        return type(value).__exit__(value, kind, kind(text) if kind else None, None)

    def _wait(self, value: Any) -> Any:
        import asyncio  # seldom wanted, and large

        return asyncio.run(_awaited(value))


async def _awaited(value: Any) -> Any:
    return await value


def main() -> None:
    """Arguments: seconds, bytes of memory, the user to become or 0, and the pipes' descriptors."""
    seconds, memory, user, reading, writing = (int(text) for text in sys.argv[1:6])
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    confine(seconds, memory)
    printed = io.StringIO()
    sys.stdout = sys.stderr = printed
    lent = Lent()

    def told() -> str:
        text = printed.getvalue()
        printed.seek(0)
        printed.truncate()
        return text

    lent.peer = Peer(reading, writing, lent, lent.raised, lent.answer, told)
    lent.peer.serve()


if __name__ == "__main__":
    main()
