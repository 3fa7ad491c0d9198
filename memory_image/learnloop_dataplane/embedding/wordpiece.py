"""BERT's tokenizer, which most embedders of English read their texts by."""

import unicodedata
from collections.abc import Mapping, Sequence

from learnloop_dataplane.errors import ConfigError

MAX_TOKENS = 256
UNKNOWN, BEGIN, END, PAD = "[UNK]", "[CLS]", "[SEP]", "[PAD]"
LONGEST = 100  # characters of a word; a longer one is unknown


class WordPiece:
    """BERT's uncased tokenizer (Devlin et al., 2019): words and punctuation, then the longest known pieces.

    Args:
        vocabulary: the id of each piece.
        needed: pieces that whoever uses it must find there; all four for `encode`.

    Raises:
        ConfigError: a piece that every such vocabulary has is missing.
    """

    def __init__(self, vocabulary: Mapping[str, int], needed: Sequence[str] = (UNKNOWN, BEGIN, END, PAD)) -> None:
        self._ids = vocabulary
        for piece in needed:
            if piece not in self._ids:
                raise ConfigError(f"the vocabulary has no {piece}; give that of a BERT model")
        self.pad = self._ids.get(PAD, 0)
        self._longest = max(map(len, vocabulary))

    def encode(self, text: str) -> list[int]:
        """Ids of at most 256 tokens, begin and end included."""
        return [self._ids[BEGIN], *self.pieces(text, MAX_TOKENS - 2), self._ids[END]]

    def pieces(self, text: str, most: int = MAX_TOKENS) -> list[int]:
        """Ids of at most so many pieces of the text itself."""
        ids: list[int] = []
        # What a piece is cut from has a character at least: nobody reads further than that.
        for word in _words(text[: most * LONGEST]):
            ids += self._of(word)
            if len(ids) >= most:
                break
        return ids[:most]

    def _of(self, word: str) -> list[int]:
        if len(word) > LONGEST:
            return [self._ids[UNKNOWN]]
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            last = min(len(word), start + self._longest)
            end = next((end for end in range(last, start, -1) if prefix + word[start:end] in self._ids), None)
            if end is None:
                return [self._ids[UNKNOWN]]
            ids.append(self._ids[prefix + word[start:end]])
            start = end
        return ids


def listed(lines: str) -> dict[str, int]:
    """The vocabulary of a `vocab.txt`: a piece a line."""
    return {piece: place for place, piece in enumerate(lines.splitlines())}


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFD", text.lower())
    spaced = "".join(
        f" {char} " if unicodedata.category(char)[0] in "PS" or _is_han(char) else " " if char.isspace() else char
        for char in plain
        if unicodedata.category(char) not in ("Mn", "Cc") or char.isspace()
    )
    return spaced.split()


def _is_han(char: str) -> bool:
    return 0x4E00 <= ord(char) <= 0x9FFF or 0x3400 <= ord(char) <= 0x4DBF
