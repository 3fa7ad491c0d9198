"""The words of a memory, and the stems of them by which it is searched. Pure."""

import hashlib
import re
import struct
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice
from typing import Any

import orjson
import Stemmer

MAX_TEXT = 8192
MAX_QUESTION = 65_536  # characters that are looked through for the end of a question
MAX_TERMS = 256
_WORD = re.compile(r"[^\W_]+")
_MARKED_WORD = re.compile(r"[^\W_]\S*")
_BETWEEN = re.compile(r"[\s“”„«»]+|(?<!\d)\"|(?<=[^\W\d_])[-\u2010\u2011](?=[^\W\d_])")
_SAYS_NOTHING = "the"
ENDS = ".;:…。"  # other signs change the meaning: 5 and 5!, yes and yes?
_EXCLAIMED = re.compile(r"(?<=[^\W\d_])[!！]+[\s\"”»]*$")


def text_of(content: Any, most: int = MAX_TEXT) -> str:
    """One text for a JSON value, at most so many characters: its `text` when it has one, else every key and scalar."""
    if isinstance(content, str):
        return content[:most]
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return str(content["text"])[:most]
    parts: list[str] = []
    size = 0
    for part in _scalars(content):
        parts.append(part)
        size += len(part) + 1
        if size >= most:
            break
    return " ".join(parts)[:most]


def question_of(content: Any) -> str:
    """The same of a question: of a longer one the first and last 4,096 characters, for what is asked may be last."""
    text = text_of(content, MAX_QUESTION)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT // 2]} {text[-MAX_TEXT // 2 :]}"


def _scalars(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key in reversed(item):
                stack.extend((item[key], str(key)))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        elif item is not None:
            yield str(item)


def normalised(text: str) -> str:
    """The words and symbols of a text, in order, without case, quotes, the end of its last sentence and "the"."""
    plain = unicodedata.normalize("NFC", text).lower().replace("\u2019", "'")
    words = _BETWEEN.sub(" ", _EXCLAIMED.sub("", plain)).rstrip(f"{ENDS} ").split()
    return " ".join(word for word in words if word != _SAYS_NOTHING)


def details(content: dict[str, Any]) -> frozenset[str]:
    """Everything of a memory but the text that is searched: its other fields as JSON, and the end of a long text."""
    text = content.get("text")
    if not isinstance(text, str):
        return frozenset({orjson.dumps(content, option=orjson.OPT_SORT_KEYS).decode()})
    fields = ([name, value] for name, value in content.items() if name != "text")
    rest = frozenset(orjson.dumps(field, option=orjson.OPT_SORT_KEYS).decode() for field in fields)
    return rest | {text[MAX_TEXT:]} if len(text) > MAX_TEXT else rest


def words(text: str) -> list[str]:
    """Words of letters, digits and the marks that belong to them, in order, each at most 64 characters.

    Compatible forms, cases and signs that writers may leave out are one: full width, ligatures, ß and ss, İ and i, the
    vowel signs of Arabic and Hebrew.
    """
    if text.isascii():
        lower = text.lower()
        tokens: list[str] = _WORD.findall(lower)
    else:
        lower = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).translate(_PARTS)
        tokens = _MARKED_WORD.findall(lower)
    return tokens if len(lower) <= 64 else [word[:64] for word in tokens]


class _Parts(dict[int, int | None]):
    """For `str.translate`: letters, digits and marks stay, optional signs go, anything else separates words."""

    def __missing__(self, code: int) -> int | None:
        part: int | None = code
        category = unicodedata.category(chr(code))
        vowel = category == "Mn" and unicodedata.name(chr(code), "").startswith(("HEBREW", "ARABIC"))
        if code in _OPTIONAL or vowel:
            part = None
        elif category[0] not in "LNM":
            part = ord(" ")
        self[code] = part
        return part


# The dot of a lower-case İ; the stroke that lengthens an Arabic word; soft hyphens, variants of a glyph, and marks
# without width: spaces, joiners, directions.
_OPTIONAL = frozenset((0x0307, 0x0640, 0x00AD, 0x2060, 0xFEFF, *range(0x200B, 0x2010), *range(0xFE00, 0xFE10)))
_PARTS = _Parts()


def pack(tokens: list[str]) -> bytes:
    """The distinct words of a text for `memory_index.terms`: little-endian uint32, hash << 8 | count, at most 256.

    24 bits of hash: two of an agent's 5,000 words share one with probability 0.5, and then score as one word.
    """
    counts = Counter(tokens)
    packed = [term_hash(word) << 8 | min(count, 255) for word, count in islice(counts.items(), MAX_TERMS)]
    return struct.pack(f"<{len(packed)}I", *packed)


def term_hash(word: str) -> int:
    """24 bits that stand for a word."""
    return zlib.crc32(word.encode()) >> 8


def thread_of(session: str | None) -> int:
    """A number for a session, 0 for none: memories of one thread are each other's context."""
    if not session:
        return 0
    return int.from_bytes(hashlib.blake2b(session.encode(), digest_size=8).digest(), signed=True) or 1


def same_of(content: dict[str, Any], *rest: str) -> int:
    """A number that copies share: memories of the same words and details; `rest` is the same, too."""
    return thread_of(orjson.dumps([normalised(text_of(content)), sorted(details(content)), rest]).decode())


NONE = "none"
LANGUAGES = (NONE, *sorted(Stemmer.algorithms()))
CACHED_STEMS = 50_000  # words whose stems the library keeps
# The last letter of a script, and the language whose stems its words have by default.
_SCRIPTS = (
    ("\u03ff", ""),
    ("\u052f", "russian"),
    ("\u05ff", ""),
    ("\u06ff", "arabic"),
    ("\u08ff", ""),
    ("\u097f", "hindi"),
)
_LATIN = ("english", "german", "french", "spanish", "italian", "portuguese", "dutch")
_LONG_VOWELS = re.compile("[\u0627\u0648\u064a]")  # of Arabic: plurals differ in them
# Han, kana, Thai, Lao, Myanmar and Khmer: letters without spaces between the words.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
# The closed classes of English: articles, pronouns, auxiliaries, prepositions, conjunctions, question words, and what
# an apostrophe leaves of them.
_CLOSED_CLASSES = """
a an the this that these those some any such own same other both each few more most all only
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
who whom whose which what when where why how
am is are was were be been being do does did doing done have has had having
will would shall should can could may might must
and or but if then than so as because while of at by for from in into on onto to up down with without
about over under again off out not no nor here there just too very also
s t d ll m re ve don didn doesn isn wasn weren won wouldn couldn shouldn hasn haven hadn ain aren
"""
ENGLISH_STOP_WORDS = frozenset(_CLOSED_CLASSES.split())


class Analyzer:
    """Cuts texts into terms; `name` is kept with what was cut by it: terms of two analyzers are never compared.

    Args:
        language: `none`, or one for which Snowball has a stemmer; stop words are known in English alone.

    Raises:
        ValueError: Snowball has no stemmer for it.
    """

    def __init__(self, language: str = "english") -> None:
        if language not in LANGUAGES:
            raise ValueError(f"unknown language {language!r}: name one of {', '.join(LANGUAGES)}")
        self.name = f"{language}-5"
        self._stop = ENGLISH_STOP_WORDS if language == "english" else frozenset()
        self._ascii_only = language == "english"
        self._stemmer = None if language == NONE else Stemmer.Stemmer(language, CACHED_STEMS)

    def terms(self, text: str, *, stored: bool = False) -> list[str]:
        """The terms of a text, in order; of a text of stop words alone, their stems.

        Each term has at most 64 characters. What is stored has single characters of Han, too, for questions of one.
        """
        tokens = words(text)
        if not text.isascii():
            tokens = [part for token in tokens for part in _cut(token, _HAN if stored else None)]
        rest = [token for token in tokens if token not in self._stop] or tokens
        return [self._stem(token) for token in rest]

    def _stem(self, word: str) -> str:
        stemmer = self._stemmer
        if self._ascii_only and not word.isascii():
            stemmer = next((_stemmer(name) for last, name in _SCRIPTS if word[0] <= last), None)
        return word if stemmer is None else str(stemmer.stemWord(word)) or word


@lru_cache(CACHED_STEMS)
def root(stem: str) -> str:
    """The stem without the endings of any language of its script: inflections in any of these have one root."""
    latin = stem[0] <= "\u024f"
    for name in _LATIN if latin else [name for last, name in _SCRIPTS if stem[0] <= last][:1]:
        stem = str(_stemmer(name).stemWord(stem)) if name else stem
    return _LONG_VOWELS.sub("", stem) or stem


@cache
def _stemmer(language: str) -> Any:
    return Stemmer.Stemmer(language, CACHED_STEMS) if language else None


def _cut(token: str, single: re.Pattern[str] | None) -> list[str]:
    if not _UNSPACED.search(token):
        return [token]
    parts, last = [], 0
    for run in _UNSPACED.finditer(token):
        parts += [token[last : run.start()]] if run.start() > last else []
        text = run.group()
        parts += [text[i : i + 2] for i in range(len(text) - 1)] or [text]
        parts += single.findall(text) if single and len(text) > 1 else []
        last = run.end()
    return parts + ([token[last:]] if last < len(token) else [])
