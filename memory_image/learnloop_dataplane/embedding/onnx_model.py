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
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from learnloop_dataplane.embedding.embedder import Vector
from learnloop_dataplane.errors import ConfigError

BATCH = 32
MOST_TOGETHER = 1024  # tokens that run together, padding included: a recall waits for one such run, not for all
MAX_TOKENS = 256
MOST_TEXT = 100 * MAX_TOKENS  # characters: a longer word than 100 is unknown


class OnnxEmbedder:
    """Mean of the token states, as sentence-transformers pools them, normalised. Runs outside the event loop.

    Raises:
        ConfigError: the directory does not hold such a model.
    """

    def __init__(self, directory: Path) -> None:
        model, vocabulary = directory / "model.onnx", directory / "vocab.txt"
        try:
            import onnxruntime

            content = model.read_bytes()
            self._tokens = BertWordPieceTokenizer.from_file(str(vocabulary))
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common class
            raise ConfigError(f"LEARNLOOP_EMBEDDER: {directory} holds no ONNX model: {error}") from error
        self._tokens.enable_truncation(MAX_TOKENS)
        self._inputs = {item.name for item in self._session.get_inputs()}
        self.dimensions = len(self._run(self._cut([""]))[0])
        # The content's hash, not the path: another model under the same path embeds everything again.
        self.name = f"onnx:{hashlib.sha256(content).hexdigest()[:12]}:{self.dimensions}"
        self._one = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder. Callers take turns run by run: who asks for one vector never waits for another's thousand."""
        rows = await asyncio.to_thread(self._cut, texts)
        vectors: list[Vector] = [np.zeros(self.dimensions, np.float32)] * len(texts)
        for places in batches([len(row) for row in rows]):
            async with self._one:
                run = await asyncio.to_thread(self._run, [rows[place] for place in places])
            for place, vector in zip(places, run, strict=True):
                if texts[place].strip():
                    vectors[place] = vector
        return vectors

    def _cut(self, texts: Sequence[str]) -> list[list[int]]:
        # UTF-8, which the library wants, cannot hold a lone surrogate.
        sent = [text[:MOST_TEXT].encode(errors="replace").decode() for text in texts]
        return [encoding.ids for encoding in self._tokens.encode_batch(sent)]

    def _run(self, rows: Sequence[list[int]]) -> list[Vector]:
        width = max(len(row) for row in rows)
        ids = np.zeros((len(rows), width), dtype=np.int64)
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
