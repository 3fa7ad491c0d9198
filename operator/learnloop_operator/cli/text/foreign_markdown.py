"""Others' words within markdown of ours: one line, without links, pictures, code or HTML of their own."""

import re

from learnloop_api.foreign_text import one_line

_BEGINS_SOMETHING = re.compile(r"[\\`]|\](?=[(\[:])|<(?=[A-Za-z/!?])")
"""CommonMark 0.31: 6.1 code spans, 6.3 links, 6.5 autolinks, 6.6 HTML. Brackets of an interval stay as they are."""


def plain(text: str) -> str:
    """The text as markdown that reads as the text."""
    return one_line(_BEGINS_SOMETHING.sub(lambda found: f"\\{found[0]}", text))
