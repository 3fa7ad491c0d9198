"""Takes secrets and personal data out of text: the same rules at the publisher and at the data plane.

It knows shapes: keys, tokens, passwords given by name, e-mail addresses, payment cards (Luhn), bank accounts (IBAN,
ISO 13616 mod 97), telephone numbers, IP addresses, social security numbers. It looks through disguises: characters that
look the same, characters that nobody sees, Base64, pieces in a list. It does not know meaning: a name is not found, and
a number that is no string passes. With a key, each find becomes `<EMAIL:9f3a1c02>`, the same for the same find, so that
learning still sees who is who; HMAC-SHA256 (RFC 2104) keeps those without the key from trying names. Without one it
becomes `<EMAIL>`.

The shapes are in rules.py. Matching stays linear on hostile text.
"""

import hashlib
import hmac
import re
from functools import lru_cache, partial
from typing import Any

from learnloop_common.redaction.checks import cards, iban_length
from learnloop_common.redaction.disguises import BASE64, decoded, is_disguised, undone
from learnloop_common.redaction.personal import MARKS, MAY_BE_PERSONAL, PERSONAL, is_address
from learnloop_common.redaction.rules import GROUPED, plain_address, rules_for

MAX_DEPTH = 64
MAX_PIECES, MAX_PIECE, MIN_WHOLE = 32, 40, 9
"""Of a list that may be a secret in pieces: how many, how long each, and how long all of them."""
_MARK = re.compile(r"<([A-Z]{2,6})(?::[0-9a-f]{8})?>")
_WHOLE = frozenset(("SECRET", "CARD", "IBAN", "SSN", "EMAIL", "PHONE"))
MAX_KEPT = 64  # characters of a name that is kept with what became of it
_SECRET_NAME = re.compile(
    r"(?i)^(.*[_. -]|(?-i:.*[a-z](?=[A-Z])))?((api|access|secret|private|signing|encryption)[_ -]?key|"
    r"(client[_ -]?)?secret|pass(word|wd|phrase|code)?|pwd|((access|refresh|auth|id|bearer|session)[_ -]?)?token|"
    r"authorization|cookie|credential)s?$"
)
_BEGIN = re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
# Beside hexadecimal letters a run of digits, and after such a group an IBAN's, is part of a hash or a UUID. What stands
# before is looked at last: a pattern that begins with its own characters finds nothing eight times as fast.
_IBAN = re.compile(
    rf"[A-Za-z]{{2}}\d\d(?<![A-Za-z0-9].{{4}})(?<![0-9a-fA-F]-.{{4}})(?:{GROUPED}?[A-Za-z0-9]){{11,30}}", re.ASCII
)
_DIGITS = re.compile(rf"\d(?<![0-9a-fA-F]\d)(?<!\d\.\d)(?:{GROUPED}?\d){{12,}}(?![0-9a-fA-F])", re.ASCII)
_SEPARATOR = re.compile(GROUPED)
_PLAIN_TYPES = frozenset((float, int, bool, type(None)))
_USER_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NUMBER = re.compile(rf"\d{GROUPED}?\d\d")  # in every card and account
# Two short strings, one after the other in a list.
SPLIT = re.compile(r'[\[,]"[^"\\]{0,40}","')
# What _IBAN and _DIGITS begin with, whatever stands before it.
_ACCOUNT = re.compile(
    rf"\d(?:\d(?<=[A-Za-z]{{2}}\d\d)(?:{GROUPED}?[A-Za-z0-9]){{11}}|(?:{GROUPED}?\d){{12}})", re.ASCII
)
# In what a member with a secret is called: without an i, which a pattern also finds where it has no dot.
_NAMES = ("pass", "pwd", "key", "secret", "token", "credent", "author", "cook")


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
        self._known = lru_cache(maxsize=4096)(self._look)  # names come again with every value

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
        if "-----BEGIN" in value:
            value = self._private_keys(value)
        value = self._plain(value)
        if is_disguised(value):
            current = undone(value)
            result = self._plain(current)
            value = value if result == current else result
        return BASE64.sub(self._encoded, value)

    def _plain(self, value: str) -> str:
        """The text as it is written."""
        for rule in rules_for(value):
            value = rule.pattern.sub(partial(self._cut, rule.kind), value)
        if _NUMBER.search(value) is not None:
            value = _DIGITS.sub(self._cards, self._ibans(value))
        return PERSONAL.sub(self._personal, value) if MAY_BE_PERSONAL.search(value) else value

    def _encoded(self, match: re.Match[str]) -> str:
        inside = decoded(match[0])
        return self.mark("SECRET", match[0]) if inside and self._plain(inside) != inside else match[0]

    def _personal(self, match: re.Match[str]) -> str:
        kind = match.lastgroup or ""
        result = match[0]
        if kind in ("IPV4", "IPV6") and not is_address(result):
            return result
        return self.mark(MARKS[kind], re.sub(r"[ ()./-]", "", result) if kind.startswith("PHONE") else result.lower())

    def value(self, value: Any, depth: int = 0) -> Any:
        """The same JSON value with every string redacted, and whatever stands under a secret's name taken out.

        Whatever is nested deeper than 64 levels is dropped.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            if depth >= MAX_DEPTH:
                return {}
            fields = {}
            for key, item in value.items():
                name, secret = self._known(key) if len(key) <= MAX_KEPT else self._look(key)
                # Most members of most documents are numbers: a step of an episode has one string at most.
                plain = not secret and item.__class__ in _PLAIN_TYPES
                fields[name] = item if plain else self._member(key, item, depth + 1, secret=secret)
            return fields
        if isinstance(value, list):
            if depth >= MAX_DEPTH:
                return []
            if value and value[0].__class__ in _PLAIN_TYPES and _PLAIN_TYPES.issuperset(map(type, value)):
                return value
            items = [self.value(item, depth + 1) for item in value]
            return self._split(items) if 1 < len(items) <= MAX_PIECES and items[0].__class__ is str else items
        return value

    def _split(self, items: list[Any]) -> list[Any]:
        """A secret in pieces: short strings that are one together. Each piece becomes the mark of the whole."""
        if any(item.__class__ is not str or len(item) > MAX_PIECE or _is_mark(item) for item in items):
            return items
        for whole in ("".join(items), " ".join(items)):
            kinds = _MARK.findall(self._plain(whole)) if len(whole) >= MIN_WHOLE else []
            if kinds and kinds[0] in _WHOLE:
                return [self.mark(kinds[0], whole)] * len(items)
        return items

    def mark(self, kind: str, found: str) -> str:
        """Mark that replaces `found`."""
        if self._key is None:
            return f"<{kind}>"
        message = f"{kind}:{found}".encode("utf-8", "replace")
        return f"<{kind}:{hmac.digest(self._key, message, 'sha256').hex()[:8]}>"

    def _look(self, key: str) -> tuple[str, bool]:
        """A member's name as it is kept, and whether it is a secret's."""
        return self.text(key), is_secret_name(key)

    def _member(self, key: str, value: Any, depth: int, *, secret: bool) -> Any:
        if secret and value is not None and value != "" and not _is_count(key, value):
            return value if isinstance(value, str) and _is_mark(value) else self.mark("SECRET", str(value))
        return self.value(value, depth)

    def _cut(self, kind: str, match: re.Match[str]) -> str:
        whole, start, group = match[0], match.start(), match.lastindex or 0
        left, right = match.start(group) - start, match.end(group) - start
        result = whole[left:right]
        return whole[:left] + self.mark(kind, plain_address(result) if kind == "EMAIL" else result) + whole[right:]

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
            result = _SEPARATOR.sub("", match[0][:length]).upper()
            parts += [value[position : match.start()], self.mark("IBAN", result)]
            position = begin = match.start() + length
        return "".join([*parts, value[position:]])

    def _cards(self, match: re.Match[str]) -> str:
        text, position, parts = match[0], 0, []
        for start, stop in cards(text):
            parts += [text[position:start], self.mark("CARD", _SEPARATOR.sub("", text[start:stop]))]
            position = stop
        return "".join([*parts, text[position:]])


def harmless(encoded: str) -> bool:
    """Would `Redaction.value` leave the value alone of which this is the JSON text? True only where it is certain.

    It takes half as long as to take the value apart. JSON escapes no character that a rule needs, and what it does
    escape (NUL, a quote) only adds to the text.

    Args:
        encoded: complete, without spaces, and with no more escapes than RFC 8259 asks for.
    """
    if "\\u0000" in encoded or encoded.count("{") + encoded.count("[") > MAX_DEPTH:
        return False
    folded = encoded.casefold()
    for part in _NAMES:
        if part in folded:
            return False
    if is_disguised(encoded) or BASE64.search(encoded) or SPLIT.search(encoded) or PERSONAL.search(encoded):
        return False
    return _ACCOUNT.search(encoded) is None and not rules_for(encoded)


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
    return _MARK.fullmatch(value) is not None


_PLAIN = Redaction()
