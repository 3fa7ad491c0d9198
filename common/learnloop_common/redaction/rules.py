"""Patterns of secrets and addresses, and quick checks for text without any of them.

Work stays in proportion to the length of hostile text: a pattern begins with a fixed word or where a run of its own
characters does, and what it looks ahead for has a bound.
"""

import ipaddress
import re
from itertools import groupby
from typing import NamedTuple

SEPARATORS = " _./\u00a0\u2007\u2009\u200a\u202f\u2010\u2011\u2012\u2013-"
"""Separators between the groups of a card's or an account's digits: also spaces that do not break, and dashes."""
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


# Telephone numbers, IP addresses and social security numbers. No check digit tells these from other numbers. So only
# the forms count that people write them in, and what stands around them decides: a version, a date or a part of a
# longer number is none.
MARKS = {"PHONE": "PHONE", "PHONE_US": "PHONE", "SSN": "SSN", "IPV4": "IP", "IPV6": "IP"}
"""Group of `PERSONAL` → what stands where it stood."""
_APART = r"(?<![\w.,:+-])"
_ENDS = r"(?![\w-]|[.,:]\d)"
# ITU-T E.164: a plus, and 8 to 15 digits in groups.
_PHONE = r"\+[1-9](?=(?:[ ()./-]{0,2}\d){7,14}(?!\d))(?:[ ()./-]{0,2}\d){7,14}"
# The North American Numbering Plan: area and exchange begin with 2 to 9.
_PHONE_US = r"(?:\([2-9]\d\d\)[ /-]?|[2-9]\d\d[/-])[2-9]\d\d[ /-]\d{4}"
# Without numbers that the Social Security Administration never assigns.
_SSN = r"(?!000|666|9)\d{3}(?P<dash>[/-])(?!00)\d\d(?P=dash)(?!0000)\d{4}"
_IPV4 = r"(?<![vV])\d{1,3}(?:\.\d{1,3}){3}"
_IPV6 = r"(?=(?:[0-9a-fA-F]{1,4}:){5}|[0-9a-fA-F:]{1,24}::)[0-9a-fA-F]{1,4}:(?:[0-9a-fA-F]{0,4}:){1,6}[0-9a-fA-F]{1,4}"
PERSONAL = re.compile(
    rf"{_APART}(?:(?P<PHONE>{_PHONE}){_ENDS}|(?P<PHONE_US>{_PHONE_US}){_ENDS}|(?P<SSN>{_SSN}){_ENDS}"
    rf"|(?P<IPV4>{_IPV4})(?![\w-]|\.\d)|(?P<IPV6>{_IPV6})(?![\w:-]))",
    re.ASCII,
)
MAY_BE_PERSONAL = re.compile(r"[+:\d](?:(?<=\+)[1-9]|(?<=:)[0-9a-fA-F]{0,4}:|(?<=\d)[)./-] ?\d)", re.ASCII)
"""In each of them; a text is searched for it in a fifth of the time."""
_HEXTETS = 4
"""Groups of an IPv6 address that is shortened; with fewer it may be a time or a name in code."""


def is_address(text: str) -> bool:
    """Is this the IP address of somebody? Loopback, unspecified and multicast ones are not personal."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        return False
    if address.version == 6:
        return len([part for part in text.split(":") if part]) >= _HEXTETS
    sizes = sorted(map(len, text.split(".")))
    return sizes[-1] == 3 or sizes[-2] == 2  # the others are versions, more often than not


# Check digits: is this run of digits a payment card, is that run of letters and digits a bank account?
CARD_DIGITS = range(13, 20)  # ISO/IEC 7812-1
# How the digits stand on a card where not by fours: American Express, Diners Club, Maestro, UATP, old Visa.
_LAYOUTS = {(4, 6, 5), (4, 6, 4), (4, 4, 5), (4, 5, 6), (4, 3, 3, 3), (8, 8)}
_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 "
    "EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 "
    "JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 "
    "NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 "
    "TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}  # the registry of ISO 13616


def luhn(digits: str) -> bool:
    """Do the digits pass the check of ISO/IEC 7812-1, annex B?"""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def cards(text: str) -> list[tuple[int, int]]:
    """Positions of payment cards in a run of digits and separators, left to right, without overlap.

    A card begins and ends where a group of digits does: what else stands in the run (a date, a check code) does not
    hide it. Its groups are as on a card: a tenth of all numbers pass the check, and so would a tenth of all rows of
    small numbers. Networks begin with 2 to 6.
    """
    groups = _groups(text)
    items: list[tuple[int, int]] = []
    index = 0
    while index < len(groups):
        after = _card_from(text, groups, index)
        if after is None:
            index += 1
        else:
            items.append((groups[index][0], groups[after - 1][1]))
            index = after
    return items


def _card_from(text: str, groups: list[tuple[int, int]], first: int) -> int | None:
    """The index after the last group of a card that begins with this group; the longest one."""
    start = groups[first][0]
    if text[start] not in "23456" or text[max(0, start - 1) : start] == ".":
        return None  # after a point the digits are a fraction's
    digits, best = "", None
    for index in range(first, len(groups)):
        digits += text[groups[index][0] : groups[index][1]]
        if len(digits) > CARD_DIGITS[-1]:
            break
        if len(digits) in CARD_DIGITS and _as_on_a_card(text, groups[first : index + 1]) and luhn(digits):
            best = index + 1
    return best


def _as_on_a_card(text: str, groups: list[tuple[int, int]]) -> bool:
    sizes = tuple(stop - start for start, stop in groups)
    between = {text[stop] for _, stop in groups[:-1]}
    if between & {".", "/"} and (len(between) > 1 or len(sizes) < 3):
        return False  # decimal fractions, paths, and rows of them
    by_fours = all(size == 4 for size in sizes[:-1]) and sizes[-1] <= 4
    return len(sizes) == 1 or by_fours or sizes in _LAYOUTS


def _groups(text: str) -> list[tuple[int, int]]:
    groups, start = [], 0
    for index, character in enumerate(text + " "):
        if character in SEPARATORS:
            if index > start:
                groups.append((start, index))
            start = index + 1
    return groups


def iban_length(text: str) -> int | None:
    """How many characters of `text`, separators included, are an IBAN; None when it does not begin with one, or goes on
    without a separator, as a hash does."""
    wanted = IBAN_LENGTHS.get(text[:2].upper())
    if wanted is None:
        return None
    compact, stop = "", 0
    for index, character in enumerate(text):
        if character in "-./" and index % 5 != 4:
            return None  # hyphens and points stand between fours; those of a UUID and the end of a sentence do not
        if character not in SEPARATORS:
            compact += character.upper()
            stop = index + 1
        if len(compact) == wanted:
            break
    if len(compact) != wanted or text[stop : stop + 1].isalnum():
        return None
    return stop if int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1 else None
