"""Values on their way between the tests' process and the judged code's: data by value, as JSON, and the rest by number.

Nothing that is read here runs anything of the side that wrote it.
"""

import builtins
import sys
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath
from typing import Any, Protocol
from uuid import UUID

TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "Decimal": (Decimal, str, Decimal),
    "Fraction": (Fraction, str, Fraction),
    "UUID": (UUID, str, UUID),
    "Path": (PosixPath, str, PosixPath),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
}
_NAMES = {kind: name for name, (kind, _, _) in TEXTS.items()}
KEYED: dict[str, type[dict[Any, Any]]] = {"dict": dict, "Counter": Counter, "OrderedDict": OrderedDict}
SAID = "_said_there"
EXACT = 2**53
"""Whole numbers below it are written as they are."""
RAISED = (
    *("json.decoder", "decimal", "statistics", "struct", "_csv", "re", "sre_constants", "dataclasses", "queue"),
    *("_queue", "zipfile", "configparser", "binascii", "asyncio.exceptions", "concurrent.futures._base"),
)
"""Modules of the standard library whose exceptions are the same on both sides. Those of unittest steer a test."""


class Far(Protocol):
    """What stands for things that are no data, on this side."""

    def lend(self, value: Any) -> Any:
        """What to write of it; raises TypeError: it may not go."""

    def borrow(self, written: list[Any]) -> Any:
        """What stands for it here."""

    def kind_of(self, name: str, key: int, bases: tuple[type[BaseException], ...]) -> type[BaseException]:
        """The class that stands here for an exception of the other side."""


class Exchange:
    """One request and its reply. Both sides number what can be changed, so that changes come back to where they belong.

    Args:
        far: what lends and borrows.
    """

    def __init__(self, far: Far) -> None:
        self._far = far
        self._held: list[Any] = []
        self._asked = 0
        self._numbers: dict[int, int] = {}

    def write(self, value: Any) -> Any:
        """As `read` reads it. Raises TypeError for what may not go, RecursionError for what is too deep."""
        kind = type(value)
        if value is None or kind in (bool, str) or (kind is int and -EXACT < value < EXACT):
            return value
        if id(value) in self._numbers:
            return ["again", self._numbers[id(value)]]
        if kind in (list, set, deque, bytearray) or kind in KEYED.values():
            number = self._number(value)
            return ["new", kind.__name__, number, self._content(value)]
        plain = self._plain(kind, value)
        return self._far.lend(value) if plain is None else plain

    def read(self, written: Any) -> Any:
        """What was written. Raises whatever it likes for what nobody wrote."""
        if not isinstance(written, list):
            return written
        what, *rest = written
        if what == "again":
            return self._held[rest[0]]
        if what == "new":
            return self._made(*rest)
        if what in READERS:
            return READERS[what](*rest)
        if what in ("tuple", "frozenset"):
            items = (self.read(item) for item in rest[0])
            return tuple(items) if what == "tuple" else frozenset(items)
        if what == "named":
            name, fields, items = rest
            return namedtuple(name, fields)(*(self.read(item) for item in items))
        return self._far.borrow(written)

    def asked(self) -> None:
        """The request is whole; what comes from now on is the reply."""
        self._asked = len(self._held)

    def contents(self) -> list[Any]:
        """Of all that the request brought and that can be changed, as it is now."""
        return [self._content(value) for value in self._held[: self._asked]]

    def renew(self, contents: list[Any]) -> None:
        """Changes what was sent to what the other side made of it. To be called after the reply was read."""
        for value, content in zip(self._held[: self._asked], contents, strict=False):
            self._fill(value, content)

    def _number(self, value: Any) -> int:
        self._held.append(value)
        self._numbers[id(value)] = len(self._held) - 1
        return len(self._held) - 1

    def _content(self, value: Any) -> Any:
        if isinstance(value, bytearray):
            return value.hex()
        if isinstance(value, dict):
            return [[self.write(key), self.write(item)] for key, item in value.items()]
        return [self.write(item) for item in value]

    def _made(self, kind: str, number: int, content: Any) -> Any:
        maker: Any = KEYED.get(kind) or {"list": list, "set": set, "deque": deque, "bytearray": bytearray}[kind]
        value = maker()
        if self._number(value) != number:
            raise ValueError("numbers do not follow one another")
        self._fill(value, content)
        return value

    def _fill(self, value: Any, content: Any) -> None:
        if isinstance(value, bytearray):
            value[:] = bytes.fromhex(content)
        elif isinstance(value, dict):
            pairs = [(self.read(key), self.read(item)) for key, item in content]
            value.clear()
            for key, item in pairs:
                value[key] = item
        else:
            items = [self.read(item) for item in content]
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(items)

    def _plain(self, kind: type, value: Any) -> list[Any] | None:
        """Data that nobody can change; None: it is no data."""
        if kind in WRITERS:
            return [kind.__name__, *WRITERS[kind](value)]
        if kind in _NAMES:
            return ["text", _NAMES[kind], TEXTS[_NAMES[kind]][1](value)]
        if kind in (tuple, frozenset):
            return [kind.__name__, [self.write(item) for item in value]]
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return ["named", kind.__name__, list(kind._fields), [self.write(item) for item in value]]
        return None


WRITERS: dict[type, Callable[[Any], list[Any]]] = {
    int: lambda value: [hex(value)],
    float: lambda value: [value.hex()],
    complex: lambda value: [value.real.hex(), value.imag.hex()],
    bytes: lambda value: [value.hex()],
    range: lambda value: [value.start, value.stop, value.step],
    slice: lambda value: [value.start, value.stop, value.step],
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    type(NotImplemented): lambda value: [],
    type(Ellipsis): lambda value: [],
}
READERS: dict[str, Callable[..., Any]] = {
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "bytes": bytes.fromhex,
    "range": range,
    "slice": slice,
    "timedelta": timedelta,
    "NotImplementedType": lambda: NotImplemented,
    "ellipsis": lambda: ...,
    "text": lambda name, text: TEXTS[name][2](text),
}


class Raised:
    """Exceptions on their way: builtin ones are the same on both sides, others get a class of the same name.

    Args:
        far: what keeps those classes.
        key: the number of a class of this side.
    """

    def __init__(self, far: Far, key: Callable[[type], int]) -> None:
        self._far, self._key = far, key

    def write(self, exchange: Exchange, error: BaseException) -> list[Any]:
        """Its class, arguments and attributes; what may not go is left out."""
        attributes = {name: value for name, value in vars(error).items() if not name.startswith("__")}
        if shared(type(error).__module__, type(error).__name__) is None:
            attributes[SAID] = str(error)
        try:
            said = [exchange.write(item) for item in error.args]
            return [self.kind(type(error)), said, [[name, exchange.write(item)] for name, item in attributes.items()]]
        except (TypeError, RecursionError):
            return [self.kind(type(error)), [str(error)[:1000]], []]

    def kind(self, kind: type[BaseException]) -> list[Any]:
        """A class of exceptions."""
        if shared(kind.__module__, kind.__name__) is kind:
            return ["shared", kind.__module__, kind.__name__]
        bases = [base for base in kind.__bases__ if issubclass(base, BaseException)]
        return ["own", kind.__name__, self._key(kind), [self.kind(base) for base in bases]]

    def read_kind(self, written: list[Any]) -> type[BaseException]:
        """The class. Raises whatever it likes for what nobody wrote."""
        what, *rest = written
        if what == "shared":
            found = shared(*rest)
            if found is None:
                raise ValueError("no exception of both sides")
            return found
        name, key, bases = rest
        return self._far.kind_of(str(name), int(key), tuple(self.read_kind(base) for base in bases))

    def read(self, exchange: Exchange, written: list[Any]) -> BaseException:
        """The exception, not raised."""
        kind, arguments, attributes = written
        made = self.read_kind(kind)
        said = tuple(exchange.read(item) for item in arguments)
        try:
            error = made(*said)
        except TypeError:  # some want other arguments than they keep
            error = made.__new__(made)
            error.args = said
        for name, value in attributes:
            if not str(name).startswith("__"):
                setattr(error, name, exchange.read(value))
        return error


def said(error: BaseException) -> str:
    """The text of an exception that came from the other side."""
    return str(vars(error).get(SAID, error.args[0] if error.args else ""))


def shared(module: str, name: str) -> type[BaseException] | None:
    """An exception of Python's own that is the same on both sides."""
    if module != "builtins" and module not in RAISED:
        return None
    found = getattr(builtins if module == "builtins" else sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
