"""Text in disguise: other characters that look the same, characters that nobody sees, Base64.

A text is undone only to be looked at. Where nothing is found in what it stands for, it stays as it was written.
"""

import base64
import binascii
import re
import unicodedata
from functools import lru_cache

# Zero-width and soft characters, marks of direction, variation selectors, tags.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f"
)
_STRIPPED = re.compile(f"[{_UNSEEN}]+")
# Full-width forms, letters and digits in circles or of mathematics, digits of other scripts.
_LOOKALIKES = re.compile(
    "[\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u2460-\u24ff\uff01-\uff5e\U0001d400-\U0001d7ff\u2070-\u209c]"
)
# Letters of one script in a word of another (Unicode Technical Standard 39, confusables, those of ASCII letters).
_CONFUSABLE = dict(
    zip(
        "авсԁеһіјӏкмոорԛѕтԝхуАВСЕНІЈКМОРЅТХУΑΒΕΗΙΚΜΝΟΡΤΥΧΖαονρυ",
        "abcdehijlkmnopqstwxyABCEHIJKMOPSTXYABEHIKMNOPTYXZaovpu",
        strict=False,
    )
)
_FOREIGN = "".join(sorted(_CONFUSABLE))
_MIXED = re.compile(rf"(?=[\w-]*[A-Za-z0-9])(?=[\w-]*[{_FOREIGN}])[\w-]+")
_BORDER = re.compile(rf"[A-Za-z0-9_-][{_FOREIGN}]|[{_FOREIGN}][A-Za-z0-9_-]")
_DISGUISED = re.compile(f"[{_UNSEEN}]|{_LOOKALIKES.pattern}|{_BORDER.pattern}")
# What stands before is looked at last: a pattern that begins with its own characters is several times as fast.
BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20}(?<![A-Za-z0-9+/_=-].{20})[A-Za-z0-9+/_-]{0,8172}={0,2}")
_BREAKS = str.maketrans("", "", "\r\n\t")


def is_disguised(text: str) -> bool:
    """May the text stand for another one? Quick for the ASCII that most of it is."""
    return not text.isascii() and _DISGUISED.search(text) is not None


def undone(text: str) -> str:
    """Text as a reader sees it."""
    text = _STRIPPED.sub("", text)
    text = _LOOKALIKES.sub(lambda match: _plain(match[0]), text)
    return _MIXED.sub(lambda match: "".join(_CONFUSABLE.get(sign, sign) for sign in match[0]), text)


def decoded(word: str) -> str:
    """The text that a word is the Base64 of (RFC 4648, both alphabets); "" where it is none's."""
    if word.islower() or word.isupper() or word.isdigit():
        return ""  # a hash, or a name
    body = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        text = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return text if text.translate(_BREAKS).isprintable() else ""


@lru_cache(maxsize=1024)
def _plain(sign: str) -> str:
    digit = unicodedata.digit(sign, None)
    plain = str(digit) if digit is not None else unicodedata.normalize("NFKC", sign)
    return plain if plain.isascii() else sign
