"""Text that others wrote, safe to show: what a terminal obeys, and what turns the order of signs round, is spelt out.

A message of a run may hold whatever the code of an environment raised. Shown as it is, it could clear a terminal, set
its title, or forge the lines around it (CVE-2021-25743 was that in kubectl).
"""

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
    return _OBEYED.sub(lambda found: f"{found[0][:-1]}\\u{ord(found[0][-1]):04x}", text)


def one_line(text: str) -> str:
    """The same without breaks: what is written after a blank line is not taken for ours."""
    return shown(" ".join(text.split()))
