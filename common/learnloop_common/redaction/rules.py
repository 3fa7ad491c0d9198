"""Patterns of secrets and addresses, and quick checks for text without any of them.

Work stays in proportion to the length of hostile text: a pattern begins with a fixed word or where a run of its own
characters does, and what it looks ahead for has a bound.
"""

import re
from itertools import groupby
from typing import NamedTuple

SEPARATORS = " _./\u00a0\u2007\u2009\u200a\u202f\u2010\u2011\u2012\u2013-"
"""What stands between the groups of a card's or an account's digits: also spaces that do not break, and dashes."""
GROUPED = f"[{SEPARATORS}]"

_PASS = r"pass(?:word|wd|phrase|code)|pwd"
_QUOTE = r"(?:\\{0,7}[\"'`])?"
# `max_tokens=4096` and `"total_tokens": 812` are counts; one token may well be a number that opens doors.
_COUNT = rf"s{_QUOTE}\s{{0,4}}[:=]\s{{0,4}}\d{{1,9}}(?![^\s\"',;&)}}\]])"
_NAMES = rf"(?:api|access|secret|private|signing|encryption)[_ -]?key|secret|credential|token(?!{_COUNT})|{_PASS}"
_NO_MARK = r"(?!<[A-Z]{2,6}[:>])"  # what was taken out already
_NOTHING = r"(?!(?:none|null|nil|true|false|undefined)(?!\w))"  # what stands for the absence of a secret
# Up to the quote that ends it: quoted, a secret may have spaces. One that is not ended has the rest of its line.
_QUOTED = "|".join(
    [rf"{quote}({_NO_MARK}{_NOTHING}(?:[^{quote}\\\n]|\\.){{3,1024}})" for quote in "\"'`"]
    + [rf"\\{{1,7}}{quote}({_NO_MARK}{_NOTHING}(?:[^{quote}\\\n]|\\(?!\\{{0,7}}{quote})){{3,1024}})" for quote in "\"'"]
    + [rf"[“„]({_NO_MARK}{_NOTHING}[^“”\n]{{3,1024}})"]
)
_IS = r"\s{1,4}(?:is|was):?\s{1,4}"
_STATES = (
    r"(?!(?:required|missing|wrong|(?:in)?valid|(?:in)?correct|expired|empty|unknown|changed|reset|stored|sent|hashed|"
    r"encrypted|rejected|accepted|refused|needed)(?!\w))"
)
# `the secret is base64-encoded`, `the token is 32-byte`: a digit alone makes no secret, unless more follows it.
_WORD_ENDS = r"(?=[.,;:!?)\]]{0,4}(?:[\s\"'`]|$))"
_TALK = (
    r"(?!(?:(?:base|sha|md|aes|rsa|utf|oauth|v)-?\d{1,3}(?:\.\d{1,3}){0,2}(?:-[a-z]{1,32}){0,2}|\d{1,4}-[a-z]{1,32})"
    rf"{_WORD_ENDS})"
)
_BARE_WORD = r"(?!\\{0,7}[\"'`“„])"  # without quotes around it
_CREDENTIAL = r"[\w.~+/=-]"


class RedactionRule(NamedTuple):
    """One shape.

    Attributes:
        kind: what stands where it stood.
        gate: a character in all that it matches; empty: there is none.
        parts: a text that has none of these, both case-folded, does not match.
        pattern: matches all of it; where it has groups, the one that matched is taken out.
    """

    kind: str
    gate: str
    parts: tuple[str, ...]
    pattern: re.Pattern[str]


# With a letter or digit in front it is the end of another word.
_BARE = r"(?<![A-Za-z0-9])"
_NO_WORD = r"(?=[\w-]{0,255}[\dA-Z])"
_NAMED = RedactionRule(
    "SECRET",
    "",
    ("pass", "pwd", "key", "secret", "token", "credential"),
    re.compile(
        rf"(?i)(?<!<)(?:(?:{_NAMES})s?\*{{0,2}}{_QUOTE}\s{{0,4}}(?:[:=]{{1,2}}+>?+|->)\*{{0,2}}+\s{{0,4}}+"
        rf"(?:{_QUOTED}|({_NO_MARK}{_NOTHING}{_BARE_WORD}[^\s\"',;&]{{4,}}))"
        rf"|(?:{_PASS}){_IS}(?:{_QUOTED}|({_NO_MARK}{_NOTHING}{_STATES}{_BARE_WORD}\S{{4,}}(?<![.,;:])))"
        rf"|(?:{_NAMES})s?{_IS}"
        rf"(?:{_QUOTED}|({_NO_MARK}{_TALK}(?=[^\s<]{{0,255}}\d){_BARE_WORD}[^\s\"',;&]{{6,}}(?<![.:]))))"
    ),
)
_HEADER = re.compile(
    rf"(?i)(?<!\w)authorization{_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}"
    rf"(?:bearer|basic|token)\s{{1,4}}({_NO_MARK}{_CREDENTIAL}{{4,}})",
    re.ASCII,
)
# Elsewhere "basic information" is two words: no word has digits, inner capitals or twenty letters.
_SCHEME = re.compile(
    rf"(?<!\w)(?i:bearer|basic)\s{{1,4}}"
    rf"((?=\S{_CREDENTIAL}{{0,255}}[A-Z0-9=]){_CREDENTIAL}{{8,}}|{_CREDENTIAL}{{20,}})",
    re.ASCII,
)
_POINTS = rf"{_BARE}(?:SG\.[\w-]{{16,}}\.[\w-]{{16,}}|ya29\.[\w.-]{{20,}}|hvs\.[\w-]{{20,}})"
_LOW_LINES = (
    rf"{_BARE}(?:(?:[spr]k|gsk)_(?=[\w-]{{0,255}}(?:\d|\w{{20}}))[\w-]{{16,}}|gh[pousr]_\w{{20,}}|github_pat_\w{{20,}}|"
    r"hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|do[opr]_v1_[0-9a-f]{32,}|shpat_[0-9a-f]{24,}|whsec_[\w+/=]{20,}|"
    r"dckr_pat_[\w-]{20,})"
)
_HYPHENS = (
    rf"{_BARE}(?:[spr]k-(?=[\w-]{{0,255}}(?:\d|\w{{20}}))[\w-]{{16,}}|gl[a-z]{{2,6}}-{_NO_WORD}[\w-]{{16,}}|"
    rf"xox[a-z]-[\w-]{{10,}}|xapp-[\w-]{{16,}}|pypi-{_NO_WORD}[\w-]{{32,}}|GOCSPX-[\w-]{{20,}}|nvapi-[\w-]{{32,}}|"
    r"xai-[\w-]{32,})"
)
# To the last @ before a slash, as those do who read URLs; a password alone (`redis://:…@`) has no user.
_URL = rf"://[^/\s:@]{{0,128}}:({_NO_MARK}[^/\s\"'<>]{{1,256}})(?=@)"
# Letters of any script (RFC 6531), also those that are a letter and a combining mark; `%40` is an @ in a URL.
# Also as people write it for people: anna (at) example [dot] org.
_AT, _DOT = (rf"\s{{0,2}}[(\[{{]\s?(?i:{word})\s?[)\]}}]\s{{0,2}}" for word in ("at", "dot"))
_EMAIL = (
    rf"(?<![\w.%+\u0300-\u036f-])[\w.%+\u0300-\u036f-]{{1,256}}(?:@|%40|{_AT})"
    rf"[\w\u0300-\u036f-]{{1,63}}(?:(?:\.|{_DOT})[\w\u0300-\u036f-]{{1,63}})+"
)
_SPELLED = ((re.compile(_AT), "@"), (re.compile(_DOT), "."))
RULES = (
    _NAMED,  # first, or what a quoted secret has besides a token would stay
    RedactionRule("SECRET", "", ("eyj",), re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*", re.ASCII)),
    RedactionRule("SECRET", "", ("authorization",), _HEADER),
    RedactionRule("SECRET", "", ("bearer", "basic"), _SCHEME),
    RedactionRule("SECRET", "", ("akia", "asia"), re.compile(rf"{_BARE}(?:AKIA|ASIA)[0-9A-Z]{{16}}", re.ASCII)),
    RedactionRule("SECRET", "", ("aiza",), re.compile(rf"{_BARE}AIza[\w-]{{30,}}", re.ASCII)),
    RedactionRule("SECRET", ".", ("sg.", "ya29.", "hvs."), re.compile(_POINTS, re.ASCII)),
    RedactionRule(
        "SECRET",
        "_",
        ("k_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "_pat_", "hf_", "npm_", "_v1_", "shpat_", "whsec_"),
        re.compile(_LOW_LINES, re.ASCII),
    ),
    RedactionRule(
        "SECRET",
        "-",
        ("sk-", "pk-", "rk-", "gl", "xox", "xapp-", "pypi-", "gocspx-", "nvapi-", "xai-"),
        re.compile(_HYPHENS, re.ASCII),
    ),
    RedactionRule("SECRET", "@", ("://",), re.compile(_URL)),
    RedactionRule(
        "EMAIL", "", ("@", "%40", *(f"at{end}" for end in (")", "]", "}", " )", " ]", " }"))), re.compile(_EMAIL)
    ),
)
_BY_GATE = [(gate, list(rules)) for gate, rules in groupby(RULES, lambda rule: rule.gate)]


def plain_address(address: str) -> str:
    """An e-mail address in its one form, whichever way it was written."""
    for pattern, sign in _SPELLED:
        address = pattern.sub(sign, address)
    return address.lower().replace("%40", "@")


def rules_for(text: str) -> list[RedactionRule]:
    """Those that may match, in their order. Finding a part is ten times faster than trying a pattern everywhere.

    Case-folded, for outside of ASCII more than lower case differs only in case.
    """
    folded = text.casefold()
    items = []
    for gate, rules in _BY_GATE:
        if gate in folded:
            for rule in rules:
                for part in rule.parts:
                    if part in folded:
                        items.append(rule)
                        break
    return items
