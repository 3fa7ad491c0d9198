"""BERT's tokenizer, by `tokenizers`; most embedders of English read their texts by it."""

from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from learnloop_dataplane.errors import ConfigError

MAX_TOKENS = 256
UNKNOWN, BEGIN, END, PAD = "[UNK]", "[CLS]", "[SEP]", "[PAD]"
LONGEST = 100  # characters of a word; a longer one is unknown


class WordPiece:
    """BERT's uncased tokenizer: words and punctuation, then the longest pieces of the vocabulary.

    Args:
        vocabulary: the id of each piece.
        needed: pieces that must be there; all four for `encode`.

    Raises:
        ConfigError: a piece that every such vocabulary has is missing.
    """

    def __init__(self, vocabulary: Mapping[str, int], needed: Sequence[str] = (UNKNOWN, BEGIN, END, PAD)) -> None:
        self._ids = dict(vocabulary)
        for piece in needed:
            if piece not in self._ids:
                raise ConfigError(f"the vocabulary has no {piece}; give that of a BERT model")
        self.pad = self._ids.get(PAD, 0)
        model = models.WordPiece(vocab=self._ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(self, text: str) -> list[int]:
        """Ids of at most 256 tokens, begin and end included."""
        return [self._ids[BEGIN], *self.pieces(text, MAX_TOKENS - 2), self._ids[END]]

    def pieces(self, text: str, most: int = MAX_TOKENS) -> list[int]:
        """Ids of at most so many pieces of the text itself."""
        # A piece comes from at least one character, so the rest of a very long text is not read.
        beginning = text[: most * LONGEST].encode(errors="replace").decode()
        ids: list[int] = self._tokenizer.encode(beginning, add_special_tokens=False).ids
        return ids[:most]


def listed(lines: str) -> dict[str, int]:
    """The vocabulary of a `vocab.txt`: a piece a line."""
    return {piece: place for place, piece in enumerate(lines.splitlines())}
