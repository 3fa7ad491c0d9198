"""Takes secrets and personal data out of text: the same rules at the publisher and at the data plane.

It knows shapes: keys, tokens, passwords given by name, e-mail addresses, payment cards (Luhn), bank accounts (IBAN,
ISO 13616 mod 97), telephone numbers, IP addresses, social security numbers; also in compatibility characters, with
invisible characters between, in Base64, and in pieces in a list. Names of people and plain numbers pass.
With a key, each match becomes `<EMAIL:9f3a1c02>`, the same for the same match: learning can still tell people apart,
and HMAC-SHA256 (RFC 2104) keeps those without the key from trying names. Without a key it becomes `<EMAIL>`.

The shapes are in rules.py. Matching stays linear on hostile text.
"""

import base64
import binascii
import hashlib
import hmac
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from learnloop_common.key_rotation import KeyLines
from learnloop_common.redaction.rules import (
    GROUPED,
    MARKS,
    MAY_BE_PERSONAL,
    PERSONAL,
    cards,
    iban_length,
    is_address,
    plain_address,
    rules_for,
)

MAX_DEPTH = 64
MAX_PIECES, MAX_PIECE, MIN_WHOLE = 32, 40, 9
"""Of a list that may be a secret in pieces: how many, how long each, and how long all of them."""
_MARK = re.compile(r"<([A-Z]{2,6})(?::[0-9a-f]{8})?>")
_WHOLE = frozenset(("SECRET", "CARD", "IBAN", "SSN", "EMAIL", "PHONE"))
MAX_NAME = 64  # characters of a name that is kept with what became of it
_SECRET_NAME = re.compile(
    r"(?i)^(.*[_. -]|(?-i:.*[a-z](?=[A-Z])))?((api|access|secret|private|signing|encryption)[_ -]?key|"
    r"(client[_ -]?)?secret|pass(word|wd|phrase|code)?|pwd|((access|refresh|auth|id|bearer|session)[_ -]?)?token|"
    r"authorization|cookie|credential)s?$"
)
_BEGIN = re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
# Next to hexadecimal letters a run of digits, and after such a group an IBAN's, is part of a hash or a UUID. The text
# before is looked at last: a pattern that begins with its own characters finds nothing eight times as fast.
_IBAN = re.compile(
    rf"[A-Za-z]{{2}}\d\d(?<![A-Za-z0-9].{{4}})(?<![0-9a-fA-F]-.{{4}})(?:{GROUPED}?[A-Za-z0-9]){{11,30}}", re.ASCII
)
_DIGITS = re.compile(rf"\d(?<![0-9a-fA-F]\d)(?<!\d\.\d)(?:{GROUPED}?\d){{12,}}(?![0-9a-fA-F])", re.ASCII)
_SEPARATOR = re.compile(GROUPED)
_PLAIN_TYPES = frozenset((float, int, bool, type(None)))
_USER_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NUMBER = re.compile(rf"\d{GROUPED}?\d\d")  # in every card and account
# What stands before is looked at last: a pattern that begins with its own characters is several times as fast.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20}(?<![A-Za-z0-9+/_=-].{20})[A-Za-z0-9+/_-]{0,8172}={0,2}")
_BREAKS = str.maketrans("", "", "\r\n\t")


class Redaction:
    """The rules, and the keys of the pseudonyms.

    Args:
        keys: each of at least 16 bytes, the same at every process that is to make the same pseudonyms. The newest that
            is in use makes them. None: no pseudonyms.

    Raises:
        ValueError: a key is shorter.
    """

    def __init__(self, keys: bytes | KeyLines | None = None) -> None:
        self._keys = KeyLines(((keys.decode("utf-8", "surrogateescape"), 0.0),)) if isinstance(keys, bytes) else keys
        shortest = min(map(len, self._keys.values)) if self._keys else 16
        if shortest < 16:
            raise ValueError(f"the key of the pseudonyms has {shortest} bytes; give at least 16 random ones")
        self._named = lru_cache(maxsize=4096)(self._look)  # names come again with every value

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
        if not value.isascii() and (shown := _plainly(value)) != value:
            result = self._plain(shown)
            value = value if result == shown else result
        return _BASE64.sub(self._encoded, value)

    __call__ = text

    def _plain(self, value: str) -> str:
        """The text as it is written."""
        for rule in rules_for(value):
            value = rule.pattern.sub(partial(self._cut, rule.kind), value)
        if _NUMBER.search(value) is not None:
            value = _DIGITS.sub(self._cards, self._ibans(value))
        return PERSONAL.sub(self._personal, value) if MAY_BE_PERSONAL.search(value) else value

    def _encoded(self, match: re.Match[str]) -> str:
        inside = _decoded(match[0])
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
                name, secret = self._named(key, self._key()) if len(key) <= MAX_NAME else self._look(key)
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

    def mark(self, kind: str, match: str) -> str:
        """The mark that replaces `match`."""
        if self._keys is None:
            return f"<{kind}>"
        message = f"{kind}:{match}".encode("utf-8", "replace")
        key = self._key().encode("utf-8", "surrogateescape")
        return f"<{kind}:{hmac.digest(key, message, 'sha256').hex()[:8]}>"

    def _key(self) -> str:
        return self._keys.current() if self._keys else ""

    def _look(self, key: str, by: str = "") -> tuple[str, bool]:
        """A member's name after redaction by a key, and whether it is a secret's."""
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


def _plainly(text: str) -> str:
    """The text without invisible characters, in ASCII where Unicode has a compatible letter or digit."""
    visible = "".join(sign for sign in text if unicodedata.category(sign) != "Cf" and sign != "\u034f")
    digits = (str(unicodedata.digit(sign, sign)) if sign.isdigit() else sign for sign in visible)
    return unicodedata.normalize("NFKC", "".join(digits))


def _decoded(word: str) -> str:
    """The text that a word is the Base64 of (RFC 4648, both alphabets); "" if there is none."""
    if word.islower() or word.isupper() or word.isdigit():
        return ""  # a hash, or a name
    body = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        text = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return text if text.translate(_BREAKS).isprintable() else ""


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


MAX_ORIGIN = 256
_OF_EPISODE = re.compile(r"trajectory/[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\*?")


def safe_origin(origin: str, redactor: Callable[[str], str]) -> str:
    """Redacted origin of a memory, e.g. `mail/<EMAIL:9f3a1c02>`, cut to 256 characters; idempotent.

    `trajectory/<id>` stays as it is, as ids do everywhere: an erasure finds the memories of an episode by it.
    """
    if not origin or _OF_EPISODE.fullmatch(origin):
        return origin
    return redactor(origin)[:MAX_ORIGIN]


def safe_measurements(values: Mapping[str, float], redactor: Callable[[str], str]) -> dict[str, float]:
    """An outcome's values with redacted names. What is named as secrets are is left out: its number cannot be masked
    and stay one. Counts (`max_tokens`) stay."""
    return {
        redactor(name): value
        for name, value in values.items()
        if not is_secret_name(name) or name.lower().endswith("tokens")
    }
