"""The embedder port, and the default behind it: hashed n-grams. Deterministic, no files, no model.

Alone they find less of LoCoMo's evidence than the words do, or MiniLM-L6 (`make bench-recall`). They are there for what
words miss: misspellings, compounds, inflections that no stemmer knows.
"""

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.text.analysis import Analyzer

Vector = NDArray[np.float32]
MAX_CACHED_WORDS = 8000  # half a KiB each
FEW = 4  # texts that are quicker one by one
TRUST = 0.7  # in a model of language


class Embedder(Protocol):
    """Turns texts into unit vectors. `name` is stored with every row: vectors of two embedders are never compared.

    `instant` embedders take microseconds and never fail: stores need not put off what they have to do. `trust` is what
    a cosine's z-score counts beside that of the words, 1.
    """

    name: str
    dimensions: int
    instant: bool
    trust: float

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One float32 vector of length 1 for each text, or all zero for a text without words.

        Raises:
            Unavailable: the model does not answer; lexical recall goes on without it.
        """
        ...


class HashingEmbedder:
    """Terms and their character trigrams, hashed with a sign into 384 buckets (Weinberger et al., 2009, arXiv
    0902.2206), dampened by 1 + log(count). What a term contributes is worked out once and kept."""

    dimensions = 384
    instant = True
    trust = 0.2  # picked by leaving one conversation out, as all of a recall's constants: docs on recall say how

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        self._analyzer = analyzer or Analyzer()
        self.name = f"hashing-384-v3-{self._analyzer.name}"
        self._words: dict[str, tuple[NDArray[np.int16], Vector]] = {}

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder."""
        if len(texts) < FEW:
            return [self.vector(self._analyzer.terms(text)) for text in texts]
        return list(self.vectors([self._analyzer.terms(text) for text in texts]))

    def vector(self, tokens: Sequence[str]) -> Vector:
        """The unit vector of these terms."""
        if not tokens:
            return np.zeros(self.dimensions, dtype=np.float32)
        buckets: list[NDArray[np.integer[Any]]] = []
        weights: list[Vector] = []
        known = {word: self._word(word) for word in tokens}
        for word, count in Counter(tokens).items():
            places, values = known[word]
            buckets.append(places)
            weights.append(values if count == 1 else values * np.float32(1.0 + math.log(count)))
        total = np.bincount(np.concatenate(buckets), np.concatenate(weights), self.dimensions)
        length = math.sqrt(float(total @ total))
        return (total / length if length > 0 else total).astype(np.float32)

    def vectors(self, texts: Sequence[Sequence[str]]) -> NDArray[np.float32]:
        """The vectors of many texts in one pass, float32 [texts, 384], in a third of the time.

        They are bit for bit those of `vector`, since every bucket is filled in the same order.
        """
        numbers: dict[str, int] = {}
        tokens = np.array([numbers.setdefault(word, len(numbers)) for text in texts for word in text], np.intp)
        if not len(tokens):
            return np.zeros((len(texts), self.dimensions), np.float32)
        owners = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        features = [self._word(word) for word in numbers]
        places = np.concatenate([feature[0] for feature in features])
        values = np.concatenate([feature[1] for feature in features])
        sizes = np.array([len(feature[0]) for feature in features])
        # Each text's distinct words in the order in which they first occur, and how often.
        _, first, counts = np.unique(owners * len(numbers) + tokens, return_index=True, return_counts=True)
        order = np.argsort(first)
        first, counts = first[order], counts[order]
        word, owner = tokens[first], owners[first]
        damped = np.array([1.0 + math.log(count) for count in range(1, int(counts.max()) + 1)], np.float32)[counts - 1]
        each = sizes[word]
        # Where a word's features begin, less how many came before it here: counting on from it finds each of them.
        starts = (np.cumsum(sizes) - sizes)[word] - (np.cumsum(each) - each)
        at = np.repeat(starts, each) + np.arange(int(each.sum()))
        buckets = np.repeat(owner * self.dimensions, each) + places[at]
        weights = values[at] * np.repeat(damped, each)
        total = np.bincount(buckets, weights, len(texts) * self.dimensions).reshape(len(texts), -1)
        lengths = np.array([math.sqrt(float(row @ row)) or 1.0 for row in total])
        vectors: NDArray[np.float32] = (total / lengths[:, None]).astype(np.float32)
        return vectors

    def _word(self, word: str) -> tuple[NDArray[np.int16], Vector]:
        known = self._words.get(word)
        if known is None:
            if len(self._words) >= MAX_CACHED_WORDS:
                self._words.clear()
            known = self._words[word] = self._features(word)
        return known

    def _features(self, word: str) -> tuple[NDArray[np.int16], Vector]:
        padded = f"^{word}$"
        features = [f"w{word}"] + [f"t{padded[i : i + 3]}" for i in range(len(padded) - 2)]
        digests = [zlib.crc32(feature.encode()) for feature in features]
        weights = [_WORD] + [_TRIGRAM] * (len(features) - 1)
        signed = [weight if digest & 0x8000_0000 else -weight for digest, weight in zip(digests, weights, strict=True)]
        places = np.array([digest % self.dimensions for digest in digests], dtype=np.int16)
        return places, np.array(signed, dtype=np.float32)


_WORD, _TRIGRAM = np.float32(1.0), np.float32(0.35)
