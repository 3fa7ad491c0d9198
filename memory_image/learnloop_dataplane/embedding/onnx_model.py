"""A sentence-transformer run by onnxruntime from a directory: nothing is downloaded, ever.

The directory holds `model.onnx` (inputs input_ids, attention_mask and, if the model wants them, token_type_ids; first
output the token states [batch, tokens, dimensions]) and `vocab.txt`, one WordPiece a line, as BERT models have them.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Encoding
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from learnloop_dataplane.embedding.embedder import Vector
from learnloop_dataplane.errors import ConfigError

BATCH = 4  # texts that run together: a recall waits for one such run, not for all
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
        self._tokens.enable_padding()
        self._inputs = {item.name for item in self._session.get_inputs()}
        self.dimensions = len(self._run([""])[0])
        # The content's hash, not the path: another model under the same path embeds everything again.
        self.name = f"onnx:{hashlib.sha256(content).hexdigest()[:12]}:{self.dimensions}"
        self._one = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder. Callers take turns run by run: who asks for one vector never waits for another's thousand."""
        vectors: list[Vector] = [np.zeros(self.dimensions, np.float32)] * len(texts)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # of a length together: little is padded
        for places in (order[start : start + BATCH] for start in range(0, len(order), BATCH)):
            async with self._one:
                run = await asyncio.to_thread(self._run, [texts[place] for place in places])
            for place, vector in zip(places, run, strict=True):
                if texts[place].strip():
                    vectors[place] = vector
        return vectors

    def _cut(self, texts: Sequence[str]) -> list[Encoding]:
        # UTF-8, which the library wants, cannot hold a lone surrogate.
        sent = [text[:MOST_TEXT].encode(errors="replace").decode() for text in texts]
        rows: list[Encoding] = self._tokens.encode_batch(sent)
        return rows

    def _run(self, texts: Sequence[str]) -> list[Vector]:
        rows = self._cut(texts)
        ids, mask = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("ids", "attention_mask"))
        feeds: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        pooled = (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        pooled /= np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return list(np.nan_to_num(pooled, posinf=0.0, neginf=0.0).astype(np.float32))
