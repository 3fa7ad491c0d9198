"""Text of others, made safe to show in terminals and in Markdown, and figures for people."""

import re

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    r"|#(?=#\w{0,32}\[)|^[\t ]*:(?=:)",
    re.MULTILINE,
)
"""C0 and C1 but for line feeds and tabs, directions of writing (Unicode TR 9, section 2), halves of pairs, and the
first sign of an order to a pipeline."""


def shown(text: str) -> str:
    """The text with `\\uXXXX` for each such sign; within JSON it means the same as before."""
    return _OBEYED.sub(lambda match: f"{match[0][:-1]}\\u{ord(match[0][-1]):04x}", text)


def one_line(text: str) -> str:
    """The same without breaks: what is written after a blank line is not taken for ours."""
    return shown(" ".join(text.split()))


MOST_CHARACTERS = 500
"""Of one text; a comment on GitHub has 65,536 in all, and a longer one is refused whole."""
_ZERO_WIDTH = "\u200b"
_BEGINS_SOMETHING = re.compile(
    r"""
      [\\`*~|$]                                 # 6.1 code, 6.2 emphasis; GFM's tables and strikethrough, formulas
    | (?<![^\W_])_ | _(?![^\W_])                # an underscore within a word begins nothing
    | \](?=[(\[:])                              # 6.3 links; brackets of an interval stay as they are
    | <(?=[A-Za-z/!?])                          # 6.5 autolinks, 6.6 HTML and its comments
    | ^[>\#] | ^[-+](?=[-+\s]|$)                # quotes, headings, lists, lines
    | ^\[(?=[ xX]\])                            # boxes to tick
    """,
    re.VERBOSE,
)
"""CommonMark 0.31 and GitHub's additions."""
_NUMBERED = re.compile(r"^(\d{1,9})(?=[.)](?:\s|$))")
_ACTED_ON = re.compile(
    r"""
      @                                         # people, teams and bots; addresses of e-mail
    | [#!&](?=[\w#])                            # issues, merge requests, and the entities that would spell an @
    | \bGH-(?=\d)                               # GitHub's other way to name an issue
    | :(?=//) | \bwww(?=\.)                     # addresses that become links
    | :(?=[a-z+-][\w+-]*:)                      # pictures by name
    """,
    re.VERBOSE | re.IGNORECASE,
)


def plain(text: str) -> str:
    """The text as markdown that reads as the text; of a long one the beginning."""
    line = one_line(text)
    if len(line) > MOST_CHARACTERS:
        line = line[: MOST_CHARACTERS - 1] + "…"
    escaped = _NUMBERED.sub(r"\1\\", _BEGINS_SOMETHING.sub(lambda match: f"\\{match[0]}", line))
    return _ACTED_ON.sub(lambda match: match[0] + _ZERO_WIDTH, escaped)


def digits(*values: float) -> int:
    """Decimals that show differences between these: returns within 0 and 1 need three, those of hundreds one."""
    largest = max(map(abs, values))
    return 3 if largest < 1 else 2 if largest < 10 else 1


def figure(value: float, *, sign: bool = False) -> str:
    """e.g. 487.2, 8.25, 0.694; with a sign +0.021."""
    return f"{value:{'+' if sign else ''}.{digits(value)}f}"


def interval(value: float, low: float, high: float, *, sign: bool = False) -> str:
    """e.g. 487.2 [481.0, 492.1]"""
    form = f"{'+' if sign else ''}.{digits(value, low, high)}f"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"
