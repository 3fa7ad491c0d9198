"""Others' words within markdown of ours: one line that reads as it was written, and does nothing where it is shown.

A forge that shows a report acts on more than markdown: it tells whoever `@name` means, writes into what `#12` means,
closes it after "fixes", and makes links of addresses. A backslash stops none of that, for the forge looks at the text
after it is rendered. A space of no width after the sign does, in code as elsewhere; Renovate writes it, too.
"""

import re

from learnloop_common.foreign_text import one_line

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
    escaped = _NUMBERED.sub(r"\1\\", _BEGINS_SOMETHING.sub(lambda found: f"\\{found[0]}", line))
    return _ACTED_ON.sub(lambda found: found[0] + _ZERO_WIDTH, escaped)


def code(text: str) -> str:
    """A name or an address to copy, as code, in which nothing is acted on; words where it has signs of its own."""
    return f"`{text}`" if re.fullmatch(r"[\w./:+=-]+", text) else plain(text)
