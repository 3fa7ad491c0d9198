"""The tokens of a PromQL expression, by Prometheus' own rules where both agree; what it does not know is refused."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Possessive throughout: what is refused is refused in linear time, for it is read between two looks at all rollouts.
_NUMBER = r"0[xX][0-9a-fA-F]++|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_DURATION = r"(?:[0-9]++(?:ms|[smhdwy]))++"
_LENGTH = rf"{_DURATION}|[0-9]++"
_SPACE = r"[ \t\r\n]"
_TOKEN = re.compile(
    rf"""
      (?P<space>   {_SPACE}++ | \#[^\r\n]*+ )
    | (?P<string>  "(?:[^"\\\n]|\\[^\n])*+" | '(?:[^'\\\n]|\\[^\n])*+' | `[^`]*+` )
    | (?P<span>    (?:{_DURATION}) (?![0-9A-Za-z_.]) )
    | (?P<number>  (?:{_NUMBER}) (?![0-9A-Za-z_.]) )
    | (?P<range>   \[ {_SPACE}*+ (?:{_LENGTH}) {_SPACE}*+ (?: : {_SPACE}*+ (?:{_LENGTH})? {_SPACE}*+ )? \] )
    | (?P<word>    [A-Za-z_:][A-Za-z0-9_:]*+ )
    | (?P<sign>    =~ | !~ | == | != | <= | >= | [-+*/%^=<>(){{}},@] )
    """,
    re.VERBOSE,
)


class UnreadableQuery(ValueError):
    """The text is no expression that is understood here; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token: what it is (`string`, `span`, `number`, `range`, `word`, `sign`, or `end`), its text, where it begins
    and ends."""

    kind: str
    text: str
    at: int
    end: int


def tokens(query: str) -> Iterator[Token]:
    """Every token but space and comments, and one of kind `end` after the last.

    Raises:
        UnreadableQuery: a character begins no token.
    """
    at = 0
    while at < len(query):
        match = _TOKEN.match(query, at)
        if match is None:
            raise UnreadableQuery(f"cannot be read at {excerpt(query, at)}")
        if match.lastgroup != "space":
            yield Token(str(match.lastgroup), match[0], at, match.end())
        at = match.end()
    yield Token("end", "", at, at)


def excerpt(query: str, at: int) -> str:
    """The place for a message: a few characters from there."""
    rest = query[at : at + 24]
    return repr(rest + ("…" if len(query) > at + 24 else "")) if rest else "its end"
