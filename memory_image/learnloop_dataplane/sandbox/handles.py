"""What stands for the judged code's objects in the tests' process: it asks for values, and never says what is expected.

So `==` and all other operators with plain data are decided here, by the data that the object is; of an object that is
none, no data is equal to it. An object of the code would else be asked whether it is what the test expects.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

from learnloop_dataplane.sandbox.peer import Peer
from learnloop_dataplane.sandbox.values import Raised, said

PEER, NUMBER = "_learnloop_peer", "_learnloop_number"
OTHERS = "_of_the_code"


class Handle:
    # No text of its own here: `__doc__`, like all else, is the code's.
    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, PEER, peer)
        object.__setattr__(self, NUMBER, number)

    def __getattribute__(self, name: str) -> Any:
        return _ask(self, "get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "put", self, name, value)

    def __delattr__(self, name: str) -> None:
        _ask(self, "drop", self, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _ask(self, "call", self, arguments, tuple(named.items()))

    def __iter__(self) -> Iterator[Any]:
        items: Iterator[Any] = _ask(self, "do", "iter", self)
        return items if isinstance(items, Handle) else iter(items)

    def __contains__(self, item: Any) -> bool:
        plain = _plain(self)
        return any(item is one or item == one for one in self) if plain is NotImplemented else item in plain

    def __bool__(self) -> bool:
        return bool(_ask(self, "do", "bool", self) is True)

    def __hash__(self) -> int:
        return int(_ask(self, "do", "hash", self))

    def __len__(self) -> int:
        return int(_ask(self, "do", "len", self))

    def __instancecheck__(self, value: Any) -> bool:
        return bool(_ask(self, "isinstance", value, self) is True) if isinstance(value, Handle) else False

    def __subclasscheck__(self, kind: Any) -> bool:
        return bool(_ask(self, "issubclass", kind, self) is True) if isinstance(kind, Handle) else False

    def __enter__(self) -> Any:
        return _ask(self, "enter", self)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        return _ask(self, "exit", self, kind, str(error))


def _ask(handle: Handle, word: str, *arguments: Any) -> Any:
    return object.__getattribute__(handle, PEER).ask(word, *arguments)


def _plain(handle: Handle) -> Any:
    """The data that the object is; NotImplemented: it is none. The code is not told what for."""
    found = _ask(handle, "plain", handle)
    return NotImplemented if isinstance(found, Handle) else found


def _operator(name: str) -> Callable[..., Any]:
    """Between two objects of the code: asked there. With data: decided here, or not at all."""

    def apply(self: Handle, *others: Any) -> Any:
        if all(isinstance(other, Handle) for other in others):
            return _ask(self, "do", name, self, *others)
        plain = _plain(self)
        if plain is NotImplemented:
            return NotImplemented
        method = getattr(type(plain), name, None)
        return NotImplemented if method is None else method(plain, *others)

    return apply


def _asked(name: str) -> Callable[..., Any]:
    """Asked there, whatever comes along: what comes back is compared later, and here."""

    def apply(self: Handle, *others: Any) -> Any:
        return _ask(self, "do", name, self, *others)

    return apply


_WITH_DATA = ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_BITS = ("and", "or", "xor", "lshift", "rshift")
for _name in (*_WITH_DATA, *_BITS):
    setattr(Handle, f"__{_name}__", _operator(f"__{_name}__"))
for _name in (*_WITH_DATA[6:], *_BITS):
    setattr(Handle, f"__r{_name}__", _operator(f"__r{_name}__"))
for _name in ("neg", "pos", "abs", "invert", "index", "getitem", "setitem", "delitem"):
    setattr(Handle, f"__{_name}__", _asked(f"__{_name}__"))
for _name in ("next", "repr", "str", "float", "int", "round", "format", "reversed"):
    setattr(Handle, f"__{_name}__", _asked(_name))


class Borrowed:
    """The code's objects and exceptions as they stand here, and the tests' functions that the code may call."""

    def __init__(self) -> None:
        self.peer: Peer
        self.raised = Raised(self, self._key)
        self._handles: dict[int, Handle] = {}
        self._functions: list[Any] = []
        self._kinds: dict[int, type[BaseException]] = {}

    def lend(self, value: Any) -> Any:
        """A number; raises TypeError for what is neither data, nor a function, nor the code's."""
        if type(value) is Handle:
            return ["object", object.__getattribute__(value, NUMBER)]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["raisable", self.raised.kind(value)]
        if not callable(value):
            raise TypeError(f"the code gets plain values and functions from its tests, and no {type(value).__name__}")
        return ["function", self._number(value)]

    def borrow(self, written: list[Any]) -> Any:
        """What stands for it here."""
        what, number = written[:2]
        if what == "back":
            return self._functions[_index(number)]
        if what == "raisable":
            return self.raised.read_kind(number)
        if what != "object":
            raise ValueError("nobody knows what that is")
        handle = self._handles.setdefault(number, Handle(self.peer, _index(number)))
        return _awaitable(handle) if written[2] is True else handle

    def kind_of(self, name: str, key: int, bases: tuple[type[BaseException], ...]) -> type[BaseException]:
        """The code's exception; a negative key is one of the tests' own."""
        if key < 0:
            own = self._functions[-1 - key]
            if not (isinstance(own, type) and issubclass(own, BaseException)):
                raise ValueError("no exception of the tests")
            return own
        if key not in self._kinds:
            self._kinds[key] = type(name, bases, {OTHERS: key, "__str__": said})
        return self._kinds[key]

    def answer(self, word: str, *arguments: Any) -> Any:
        """Calls a function that the tests have handed out. The code can ask for nothing else."""
        if word != "call":
            raise ValueError("the tests are only called")
        number, said, named = arguments
        return self._functions[_index(number)](*said, **dict(named))

    def _number(self, value: Any) -> int:
        self._functions.append(value)
        return len(self._functions) - 1

    def _key(self, kind: type) -> int:
        own = vars(kind).get(OTHERS)
        return -1 - own if isinstance(own, int) else self._number(kind)


def _index(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError("no number")
    return number


async def _awaitable(handle: Handle) -> Any:
    return _ask(handle, "wait", handle)


def show(text: str) -> None:
    """Prints here what the code printed there: tests may look at it."""
    if text:
        sys.stdout.write(text)
