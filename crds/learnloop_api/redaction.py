"""Takes secrets and personal data out of text: the same rules at the publisher and at the data plane.

It knows shapes: keys, tokens, passwords given by name, e-mail addresses, payment cards (Luhn), bank accounts (IBAN,
ISO 13616 mod 97). It does not know meaning: a name is not found, and a number that is no string passes. With a key,
each find becomes `<EMAIL:9f3a1c02>`, the same for the same find, so that learning still sees who is who; HMAC-SHA256
(RFC 2104) keeps those without the key from trying names. Without one it becomes `<EMAIL>`.

Every pattern is anchored at the start of a run of its own characters, so matching stays linear on hostile input.
"""

import hashlib
import hmac
import re
from functools import lru_cache, partial
from typing import Any

from learnloop_api.redaction_checks import cards, iban_length

MAX_DEPTH = 64
MAX_KEPT = 64  # characters of a name that is kept with what became of it
SHORT = 12  # characters of a string in which the pattern itself looks quickly enough
_SECRET_NAME = re.compile(
    r"(?i)^(.*[_. -])?(api[_-]?key|access[_-]?key|secret([_-]?key)?|client[_-]?secret|pass(word|wd|phrase)?|pwd|"
    r"(access|refresh|auth|id|bearer|session)[_-]?token|token|authorization|cookie|private[_-]?key|credential)s?$"
)
_PASS = r"pass(?:word|wd|phrase)|pwd"
_QUOTED = r"(?:\\?[\"'])?"
# `max_tokens=4096` and `"total_tokens": 812` are counts; one token may well be a number that opens doors.
_COUNT = rf"s{_QUOTED}\s{{0,4}}[:=]\s{{0,4}}\d{{1,9}}(?![^\s\"',;&)}}\]])"
_NAMES = rf"api[_-]?key|access[_-]?key|secret|token(?!{_COUNT})|{_PASS}"
_NOTHING = r"(?!(?:none|null|nil|true|false|undefined)(?!\w))"  # what stands for the absence of a secret
_CREDENTIAL = r"[\w.~+/=-]"
_NO_MARK = r"(?!<[A-Z]{4,6}[:>])"  # what was taken out already
_BEGIN = re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----")
_END = re.compile(r"-----END [A-Z ]{0,32}PRIVATE KEY-----")
# Kind, pattern, and the group that is taken out; 0 is all of it.
_RULES: tuple[tuple[str, re.Pattern[str], int], ...] = (
    ("SECRET", re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*", re.ASCII), 0),
    (
        "SECRET",
        re.compile(
            rf"(?i)(?<!\w)authorization{_QUOTED}\s{{0,4}}[:=]\s{{0,4}}{_QUOTED}"
            rf"(?:bearer|basic|token)\s{{1,4}}({_NO_MARK}{_CREDENTIAL}{{4,}})",
            re.ASCII,
        ),
        1,
    ),
    (
        "SECRET",  # elsewhere "basic information" is two words: no word has digits, inner capitals or twenty letters
        re.compile(
            rf"(?<!\w)(?i:bearer|basic)\s{{1,4}}"
            rf"((?=\S{_CREDENTIAL}{{0,255}}[A-Z0-9=]){_CREDENTIAL}{{8,}}|{_CREDENTIAL}{{20,}})",
            re.ASCII,
        ),
        1,
    ),
    (
        "SECRET",
        re.compile(
            r"(?<![A-Za-z0-9])(?:[spr]k[-_](?=[\w-]{0,255}(?:\d|\w{20}))[\w-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}|"
            r"gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|AIza[\w-]{30,}|"
            r"hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,})",
            re.ASCII,
        ),
        0,
    ),
    ("SECRET", re.compile(rf"://[^/\s:@]{{1,128}}:({_NO_MARK}[^/\s@]{{1,256}})(?=@)"), 1),
    (
        "SECRET",
        re.compile(
            rf"(?i)(?<![a-z<])(?:{_NAMES})s?{_QUOTED}\s{{0,4}}[:=]\s{{0,4}}{_QUOTED}"
            rf"({_NO_MARK}{_NOTHING}[^\s\"',;&]{{4,}})"
        ),
        1,
    ),
    ("SECRET", re.compile(rf"(?i)(?<![a-z<])(?:{_PASS})\s{{1,4}}(?:is|was)\s{{1,4}}({_NO_MARK}\S{{4,}})"), 1),
    ("EMAIL", re.compile(r"(?<![\w.%+-])[\w.%+-]{1,256}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+"), 0),
)
# Beside hexadecimal letters a run of digits, and after such a group an IBAN's, is part of a hash or a UUID.
_IBAN = re.compile(r"(?i)(?<![a-z0-9])(?<![0-9a-f]-)[a-z]{2}\d{2}(?:[ -]?[a-z0-9]){11,30}", re.ASCII)
_DIGITS = re.compile(r"(?<![0-9a-fA-F])(?<!\d\.)\d(?:[ -]?\d){12,}(?![0-9a-fA-F])", re.ASCII)
_USER_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Most strings have nothing of this, and then the rules need not look.
_HINT = re.compile(
    r"[@:=]|eyJ|-----|(?i:bearer|basic|pass|pwd)|[spr]k[-_]|A[KS]IA|gh[pousr]_|_pat_|glpat|xox|AIza|hf_|npm_"
)
_NUMBER = re.compile(r"\d[ -]?\d\d")  # in every card and account


class Redaction:
    """The rules, and the key of the pseudonyms.

    Args:
        key: at least 16 bytes, the same wherever the same find is to be recognised; None: no pseudonyms.

    Raises:
        ValueError: the key is shorter.
    """

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) < 16:
            raise ValueError(f"the key of the pseudonyms has {len(key)} bytes; give at least 16 random ones")
        self._key = key
        self._member_name = lru_cache(maxsize=4096)(self.text)  # names come again with every value

    def __call__(self, value: str) -> str:
        """See `text`."""
        return self.text(value)

    def text(self, value: str) -> str:
        """The string without what looks like a secret or like personal data; doing it twice changes nothing.

        NUL, which PostgreSQL refuses, and lone surrogates, which no encoding has, become replacement characters.
        """
        if "\x00" in value:
            value = value.replace("\x00", "\ufffd")
        try:
            value.encode()
        except UnicodeEncodeError:
            value = value.encode("utf-8", "replace").decode()
        if (len(value) < SHORT or _may_have_hint(value)) and _HINT.search(value) is not None:
            if "-----BEGIN" in value:
                value = self._private_keys(value)
            for kind, pattern, group in _RULES:
                value = pattern.sub(partial(self._cut, kind, group), value)
        if _NUMBER.search(value) is None:
            return value
        value = self._ibans(value)
        return _DIGITS.sub(self._cards, value)

    def value(self, value: Any, depth: int = 0) -> Any:
        """The same JSON value with every string redacted, and whatever stands under a secret's name taken out.

        Whatever is nested deeper than 64 levels is dropped.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            if depth >= MAX_DEPTH:
                return {}
            return {self._name(key): self._member(key, item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            if depth >= MAX_DEPTH:
                return []
            if value and isinstance(value[0], float | int) and all(isinstance(item, float | int) for item in value):
                return value
            return [self.value(item, depth + 1) for item in value]
        return value

    def mark(self, kind: str, found: str) -> str:
        """What stands where `found` stood."""
        if self._key is None:
            return f"<{kind}>"
        message = f"{kind}:{found}".encode("utf-8", "replace")
        return f"<{kind}:{hmac.digest(self._key, message, 'sha256').hex()[:8]}>"

    def _name(self, key: str) -> str:
        return self._member_name(key) if len(key) <= MAX_KEPT else self.text(key)

    def _member(self, key: str, value: Any, depth: int) -> Any:
        if is_secret_name(key) and value is not None and value != "" and not _is_count(key, value):
            return value if isinstance(value, str) and _is_mark(value) else self.mark("SECRET", str(value))
        return self.value(value, depth)

    def _cut(self, kind: str, group: int, match: re.Match[str]) -> str:
        whole, start = match[0], match.start()
        left, right = match.start(group) - start, match.end(group) - start
        found = whole[left:right]
        return whole[:left] + self.mark(kind, found.lower() if kind == "EMAIL" else found) + whole[right:]

    def _private_keys(self, value: str) -> str:
        """PEM keys whole; one without an end takes the rest of the text with it."""
        parts, position = [], 0
        while begin := _BEGIN.search(value, position):
            end = _END.search(value, begin.end())
            stop = end.end() if end else len(value)
            parts += [value[position : begin.start()], self.mark("SECRET", value[begin.start() : stop])]
            position = stop
        return "".join([*parts, value[position:]])

    def _ibans(self, value: str) -> str:
        """Each ends where its country says, whatever words follow it."""
        parts, position, begin = [], 0, 0
        while match := _IBAN.search(value, begin):
            length = iban_length(match[0])
            if length is None:
                begin = match.start() + 4
                continue
            found = re.sub(r"[ -]", "", match[0][:length]).upper()
            parts += [value[position : match.start()], self.mark("IBAN", found)]
            position = begin = match.start() + length
        return "".join([*parts, value[position:]])

    def _cards(self, match: re.Match[str]) -> str:
        text, position, parts = match[0], 0, []
        for start, stop in cards(text):
            parts += [text[position:start], self.mark("CARD", re.sub(r"[ -]", "", text[start:stop]))]
            position = stop
        return "".join([*parts, text[position:]])


def _may_have_hint(value: str) -> bool:
    """Is there a part of a hint? What finds a part in a string is ten times faster than a pattern for all of them.

    Outside of ASCII more than lower case differs only in case.
    """
    if not value.isascii() or "@" in value or ":" in value or "=" in value or "-" in value or "_" in value:
        return True
    if "eyJ" in value or "KIA" in value or "SIA" in value or "gh" in value or "glpat" in value:
        return True
    if "xox" in value or "AIza" in value:
        return True
    lower = value.lower()
    return "pass" in lower or "pwd" in lower or "bearer" in lower or "basic" in lower


@lru_cache(maxsize=4096)
def is_secret_name(key: str) -> bool:
    """Is this what a secret is called, e.g. db_password? A number under `max_tokens` is none all the same."""
    return len(key) <= 128 and _SECRET_NAME.match(key) is not None


def user_as_sent(user_id: str) -> str:
    """How a person's id travels and is known by: as it is, or as its SHA-256 where redaction would change it.

    So an e-mail address as id is not published, and still it is another one than everybody else's.
    """
    if _USER_DIGEST.fullmatch(user_id) or _PLAIN.text(user_id) == user_id:
        return user_id
    return f"sha256:{hashlib.sha256(user_id.encode('utf-8', 'replace')).hexdigest()}"


def _is_count(key: str, value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, int | float) and key.lower().endswith("tokens"))


def _is_mark(value: str) -> bool:
    return re.fullmatch(r"<[A-Z]{4,6}(:[0-9a-f]{8})?>", value) is not None


_PLAIN = Redaction()
