"""A sentence-transformer run by onnxruntime from a directory: nothing is downloaded, ever.

The directory holds `model.onnx` (inputs input_ids, attention_mask and, if the model wants them, token_type_ids; first
output the token states [batch, tokens, dimensions]) and `vocab.txt`, one WordPiece a line, as BERT models have them.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from learnloop_dataplane.embedding.embedder import FEW, Vector
from learnloop_dataplane.errors import ConfigError

BATCH = 32
MOST_TOGETHER = 1024  # tokens that run together, padding included: a recall waits for one such run, not for all

MAX_TOKENS = 256
UNKNOWN, BEGIN, END, PAD = "[UNK]", "[CLS]", "[SEP]", "[PAD]"
LONGEST = 100  # characters of a word; a longer one is unknown


class WordPiece:
    """BERT's uncased tokenizer: words and punctuation, then the longest pieces of the vocabulary.

    Args:
        vocabulary: a `vocab.txt`, a piece a line.

    Raises:
        ConfigError: a piece that every such vocabulary has is missing.
    """

    def __init__(self, vocabulary: str) -> None:
        self._ids = {piece: place for place, piece in enumerate(vocabulary.splitlines())}
        for piece in (UNKNOWN, BEGIN, END, PAD):
            if piece not in self._ids:
                raise ConfigError(f"the vocabulary has no {piece}; give that of a BERT model")
        self.pad = self._ids[PAD]
        model = models.WordPiece(vocab=self._ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(self, text: str) -> list[int]:
        """Ids of at most 256 tokens, begin and end included."""
        # A piece comes from at least one character, so the rest of a very long text is not read.
        beginning = text[: MAX_TOKENS * LONGEST].encode(errors="replace").decode()
        ids: list[int] = self._tokenizer.encode(beginning, add_special_tokens=False).ids
        return [self._ids[BEGIN], *ids[: MAX_TOKENS - 2], self._ids[END]]


class OnnxEmbedder:
    """Mean of the token states, as sentence-transformers pools them, normalised. Runs outside the event loop.

    Raises:
        ConfigError: the directory does not hold such a model.
    """

    def __init__(self, directory: Path) -> None:
        model, vocabulary = directory / "model.onnx", directory / "vocab.txt"
        try:
            import onnxruntime

            content, pieces = model.read_bytes(), vocabulary.read_text(encoding="utf-8")
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common class
            raise ConfigError(f"LEARNLOOP_EMBEDDER: {directory} holds no ONNX model: {error}") from error
        self._tokens = WordPiece(pieces)
        self._inputs = {item.name for item in self._session.get_inputs()}
        self.dimensions = len(self._run([self._tokens.encode("")])[0])
        # The content's hash, not the path: another model under the same path embeds everything again.
        self.name = f"onnx:{hashlib.sha256(content).hexdigest()[:12]}:{self.dimensions}"
        self._one = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder. Callers take turns run by run: who asks for one vector never waits for another's thousand."""
        rows = self._cut(texts) if len(texts) < FEW else await asyncio.to_thread(self._cut, texts)
        vectors: list[Vector] = [np.zeros(self.dimensions, np.float32)] * len(texts)
        for places in batches([len(row) for row in rows]):
            async with self._one:
                run = await asyncio.to_thread(self._run, [rows[place] for place in places])
            for place, vector in zip(places, run, strict=True):
                if texts[place].strip():
                    vectors[place] = vector
        return vectors

    def _cut(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokens.encode(text) for text in texts]

    def _run(self, rows: Sequence[list[int]]) -> list[Vector]:
        width = max(len(row) for row in rows)
        ids = np.full((len(rows), width), self._tokens.pad, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)], mask[place, : len(row)] = row, 1
        feeds: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        pooled = (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        pooled /= np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return list(np.nan_to_num(pooled, posinf=0.0, neginf=0.0).astype(np.float32))


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of rows that run together, those of a length side by side: little is padded, and no run is long."""
    chosen: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if chosen and (len(chosen) == BATCH or (len(chosen) + 1) * lengths[place] > MOST_TOGETHER):
            yield chosen
            chosen = []
        chosen.append(place)
    if chosen:
        yield chosen
