"""Takes secrets and e-mail addresses out of strings before they are stored.

Defence in depth behind the publisher's own hook: it knows shapes (tokens, keys, passwords given by name), not meaning.
Every pattern is anchored at the start of a run of its own characters, so matching stays linear on hostile input.
"""

import re
from typing import Any

EMAIL = "<EMAIL>"
SECRET = "<SECRET>"
MAX_DEPTH = 64

_SECRET_NAME = re.compile(
    r"(?i)^(.*[_-])?(api[_-]?key|access[_-]?key|secret([_-]?key)?|client[_-]?secret|passw(or)?d|passwd|"
    r"(access|refresh|auth|id|bearer|session)[_-]?token|token|authorization|private[_-]?key|credentials?)$"
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[^-]{0,16384}(-----END [A-Z ]{0,32}PRIVATE KEY-----)?"),
        SECRET,
    ),
    (re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(\.[\w-]*)*", re.ASCII), SECRET),
    (re.compile(r"(?i)(?<!\w)(bearer|basic)(\s{1,4})[\w.~+/=-]{8,}", re.ASCII), rf"\1\2{SECRET}"),
    (
        re.compile(
            r"(?<![A-Za-z0-9])(sk-[\w-]{16,}|(AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{20,}|github_pat_\w{20,}|"
            r"glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|AIza[\w-]{35}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,})",
            re.ASCII,
        ),
        SECRET,
    ),
    (
        re.compile(
            r"(?i)(?<![a-z])(api[_-]?key|access[_-]?key|secret|passw(?:or)?d|passwd|token)(\"|')?(\s{0,4}[:=]\s{0,4})"
            r"(\"|')?(?!<)[^\s\"',;&<]{4,}"
        ),
        rf"\1\2\3\4{SECRET}",
    ),
    (re.compile(r"(?<![\w.%+-])[\w.%+-]{1,256}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+"), EMAIL),
)
_HINT = re.compile(r"[@:=]|eyJ|-----|(?i:bearer|basic)|sk-|A[KS]IA|gh[pousr]_|_pat_|glpat|xox|AIza|hf_|npm_")


def redact_text(value: str) -> str:
    """The string without what looks like a secret or an e-mail address.

    NUL, which PostgreSQL refuses, and lone surrogates, which no encoding has, become replacement characters.
    """
    if "\x00" in value:
        value = value.replace("\x00", "\ufffd")
    try:
        value.encode()
    except UnicodeEncodeError:
        value = value.encode("utf-8", "replace").decode()
    if _HINT.search(value) is None:
        return value
    for pattern, replacement in _PATTERNS:
        value = pattern.sub(replacement, value)
    return value


def redact(value: Any, depth: int = 0) -> Any:
    """The same JSON value with every string, and every string under a secret's name, redacted.

    Whatever is nested deeper than 64 levels is dropped.
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        if depth >= MAX_DEPTH:
            return {}
        return {redact_text(key): _redact_member(key, item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        if depth >= MAX_DEPTH:
            return []
        if value and isinstance(value[0], float | int) and all(isinstance(item, float | int) for item in value):
            return value
        return [redact(item, depth + 1) for item in value]
    return value


def _redact_member(key: str, value: Any, depth: int) -> Any:
    if isinstance(value, str) and value and len(key) <= 128 and _SECRET_NAME.match(key):
        return SECRET
    return redact(value, depth)
