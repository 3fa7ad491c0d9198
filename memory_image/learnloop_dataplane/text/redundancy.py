"""When a text says nothing that another one did not say: the rules of consolidation. Pure.

They err on the side of two memories: junk costs a little, a correction taken for a repetition costs the truth. A word
that two texts do not share may be a negation, in any language; so they say the same only word for word.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import orjson

from learnloop_dataplane.text.tokenizer import MAX_TEXT

SHORTEST_ECHO = 6  # words; shorter texts repeat by chance
MOST_SEGMENTS = 20  # of a text that is read as an echo: shown texts, and words between them
_BETWEEN = re.compile(r"[\s\"“”„«»()\[\]{}]+|(?<=[^\W\d_])[-\u2010\u2011](?=[^\W\d_])")
_ENDS = ".,;:!…。，、！"  # a question mark changes what is said, and so does a sign before a number or a word
_ARTICLES = frozenset(("a", "an", "the"))
# Words that may stand around what was shown: "as far as I know X", "I recall that X and Y".
_FRAMES = frozenset("and as far i know noted recall remember remembered that what is".split())  # noqa: SIM905
Key = TypeVar("Key")
Print = tuple[int, int]  # hashes of a text's first six words, and of all of them


def said(text: str) -> tuple[str, ...]:
    """The words and symbols of a text, in order, without articles, case, quotes and the ends of sentences."""
    plain = unicodedata.normalize("NFC", text).casefold().replace("\u2019", "'")
    found = (word.rstrip(_ENDS) for word in _BETWEEN.sub(" ", plain).split())
    return tuple(word for word in found if word and word not in _ARTICLES)


def print_of(words: Sequence[str]) -> Print | None:
    """The key of a shown text, in this process; None where the text is too short."""
    hashes = list(_hashes(words))
    return (hashes[SHORTEST_ECHO - 1], hashes[-1]) if len(hashes) >= SHORTEST_ECHO else None


class Shown(Generic[Key]):
    """Texts that were shown. Looking one up takes a time that does not depend on how many they are."""

    def __init__(self, texts: Iterable[tuple[Key, Print | None]]) -> None:
        self._beginnings: set[int] = set()
        self._whole: dict[int, list[Key]] = {}
        for key, found in texts:
            if found is not None:
                self._beginnings.add(found[0])
                self._whole.setdefault(found[1], []).append(key)

    def sources(self, words: Sequence[str], usable: Callable[[list[Key]], Key | None]) -> list[Key]:
        """The shown texts that these words consist of; none when they say anything else, or leave a word out.

        Args:
            usable: chooses among texts that are alike.
        """
        found: list[Key] = []
        place = 0
        for _ in range(MOST_SEGMENTS):
            if place == len(words):
                return found
            length, key = self._longest(words[place:], usable)
            if key is not None:
                found.append(key)
                place += length
            elif words[place] in _FRAMES:
                place += 1
            else:
                return []
        return found if place == len(words) else []

    def _longest(self, words: Sequence[str], usable: Callable[[list[Key]], Key | None]) -> tuple[int, Key | None]:
        best: tuple[int, Key | None] = 0, None
        for length, value in enumerate(_hashes(words), 1):
            if length == SHORTEST_ECHO and value not in self._beginnings:
                break
            if length >= SHORTEST_ECHO and (keys := self._whole.get(value)) and (key := usable(keys)) is not None:
                best = length, key
        return best


def _hashes(words: Iterable[str]) -> Iterator[int]:
    """A hash of the first word, of the first two, and so on."""
    value = 0
    for word in words:
        value = hash((value, word))
        yield value


def details(content: dict[str, Any]) -> frozenset[str]:
    """Everything of a memory but the text that is searched: its other fields as JSON, and the end of a long text."""
    text = content.get("text")
    if not isinstance(text, str):
        return frozenset({orjson.dumps(content, option=orjson.OPT_SORT_KEYS).decode()})
    rest = frozenset(
        orjson.dumps([name, value], option=orjson.OPT_SORT_KEYS).decode()
        for name, value in content.items()
        if name != "text"
    )
    return rest | {text[MAX_TEXT:]} if len(text) > MAX_TEXT else rest
