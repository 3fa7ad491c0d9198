"""A sentence-transformer run by onnxruntime from a directory: nothing is downloaded, ever.

The directory holds `model.onnx` (inputs input_ids, attention_mask and, if the model wants them, token_type_ids; first
output the token states [batch, tokens, dimensions]) and `vocab.txt`, one WordPiece a line, as BERT models have them.
"""

import asyncio
import hashlib
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from learnloop_dataplane.embedding.embedder import TRUST, Vector
from learnloop_dataplane.errors import ConfigError

MAX_TOKENS = 256
BATCH = 32
UNKNOWN, BEGIN, END, PAD = "[UNK]", "[CLS]", "[SEP]", "[PAD]"


class WordPiece:
    """BERT's uncased tokenizer (Devlin et al., 2019): words and punctuation, then the longest known pieces."""

    def __init__(self, vocabulary: list[str]) -> None:
        self._ids = {piece: place for place, piece in enumerate(vocabulary)}
        for piece in (UNKNOWN, BEGIN, END, PAD):
            if piece not in self._ids:
                raise ConfigError(f"vocab.txt has no {piece}; give the vocabulary of a BERT model")
        self.pad = self._ids[PAD]

    def encode(self, text: str) -> list[int]:
        """Ids of at most 256 tokens, begin and end included."""
        ids = [self._ids[BEGIN]]
        for word in _words(text):
            ids += self._pieces(word)
            if len(ids) >= MAX_TOKENS - 1:
                break
        return [*ids[: MAX_TOKENS - 1], self._ids[END]]

    def _pieces(self, word: str) -> list[int]:
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in self._ids), None)
            if end is None or len(word) > 100:
                return [self._ids[UNKNOWN]]
            ids.append(self._ids[prefix + word[start:end]])
            start = end
        return ids


class OnnxEmbedder:
    """Mean of the token states, as sentence-transformers pools them, normalised. Runs beside the event loop.

    Raises:
        ConfigError: the directory does not hold such a model.
    """

    def __init__(self, directory: Path) -> None:
        import onnxruntime

        model, vocabulary = directory / "model.onnx", directory / "vocab.txt"
        try:
            content, pieces = model.read_bytes(), vocabulary.read_text(encoding="utf-8").splitlines()
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common class
            raise ConfigError(f"LEARNLOOP_EMBEDDER: {directory} holds no ONNX model: {error}") from error
        self._tokens = WordPiece(pieces)
        self._inputs = {item.name for item in self._session.get_inputs()}
        self.dimensions = len(self._run([""])[0])
        self.instant = False
        self.trust = TRUST
        # The content's hash, not the path: another model under the same path embeds everything again.
        self.name = f"onnx:{hashlib.sha256(content).hexdigest()[:12]}:{self.dimensions}"
        self._one = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder."""
        vectors: list[Vector] = []
        async with self._one:
            for start in range(0, len(texts), BATCH):
                vectors += await asyncio.to_thread(self._run, texts[start : start + BATCH])
        return vectors

    def _run(self, texts: Sequence[str]) -> list[Vector]:
        rows = [self._tokens.encode(text) for text in texts]
        width = max(len(row) for row in rows)
        ids = np.full((len(rows), width), self._tokens.pad, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)], mask[place, : len(row)] = row, 1
        feeds: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        pooled = (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        pooled /= np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return [vector if text.strip() else np.zeros_like(vector) for vector, text in zip(pooled, texts, strict=True)]


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
