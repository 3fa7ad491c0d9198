"""A static embedder: a text is the mean of its pieces' rows in a table, as model2vec distils them (Tulkens and van
Dongen, 2024). No network runs, so it needs nothing but numpy, and takes some twenty microseconds for a question.

The directory is as model2vec writes it: `model.safetensors` with one tensor `embeddings`, [pieces, dimensions], and a
`tokenizer.json` with a WordPiece vocabulary, or a `vocab.txt` in its place. Nothing is downloaded, ever.
"""

import asyncio
import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from learnloop_dataplane.embedding.embedder import FEW, Vector
from learnloop_dataplane.embedding.wordpiece import UNKNOWN, WordPiece, listed
from learnloop_dataplane.errors import ConfigError

KINDS = {"F32": "<f4", "F16": "<f2"}
MOST_HEADER = 2**20
MOST_BYTES = 2**30
MOST_PIECES = 512  # of a text
MOST_DIMENSIONS = 4000  # of PostgreSQL's halfvec, with an index over it
TENSOR = "embeddings"


class StaticEmbedder:
    """The mean of the rows of a text's first 512 pieces, normalised; unknown ones have no part in it.

    Raises:
        ConfigError: the directory does not hold such a model.
    """

    def __init__(self, directory: Path) -> None:
        try:
            content = (directory / "model.safetensors").read_bytes()
            table, vocabulary = _table(content), _vocabulary(directory)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
            raise ConfigError(f"LEARNLOOP_EMBEDDER: {directory} holds no static model: {error}") from error
        if not all(0 <= place < len(table) for place in vocabulary.values()):
            raise ConfigError(
                f"LEARNLOOP_EMBEDDER: {directory} has {len(vocabulary)} pieces, but {len(table)} rows; "
                "model and vocabulary belong to two models"
            )
        self._table = table
        self._pieces = WordPiece(vocabulary, needed=(UNKNOWN,))
        self._unknown = vocabulary[UNKNOWN]
        self.dimensions = int(table.shape[1])
        # The content's hash, not the path: another model under the same path embeds everything again.
        self.name = f"static:{hashlib.sha256(content).hexdigest()[:12]}:{self.dimensions}"

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder."""
        if len(texts) < FEW:
            return [self._vector(text) for text in texts]
        return await asyncio.to_thread(lambda: [self._vector(text) for text in texts])

    def _vector(self, text: str) -> Vector:
        ids = [piece for piece in self._pieces.pieces(text, MOST_PIECES) if piece != self._unknown]
        if not ids:
            return np.zeros(self.dimensions, np.float32)
        mean = self._table[ids].mean(axis=0, dtype=np.float32)
        length = float(np.linalg.norm(mean))
        vector: Vector = mean / np.float32(length) if length > 0 else mean
        return vector


def _table(content: bytes) -> NDArray[Any]:
    """The tensor of a safetensors file: a length, a JSON header, and the numbers behind it."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"model.safetensors has more than {MOST_BYTES} bytes")
    (size,) = struct.unpack("<Q", content[:8])
    if size > MOST_HEADER:
        raise ValueError("model.safetensors has no safetensors header")
    header = orjson.loads(content[8 : 8 + size])[TENSOR]
    if header["dtype"] not in KINDS or len(header["shape"]) != 2:
        raise ValueError(
            f"{TENSOR} is {header['dtype']} {header['shape']}; give F16 or F32 with one row for each piece"
        )
    begin, end = header["data_offsets"]
    table = np.frombuffer(content[8 + size :][begin:end], KINDS[header["dtype"]]).reshape(header["shape"])
    if not 1 <= table.shape[1] <= MOST_DIMENSIONS:
        raise ValueError(f"{TENSOR} has {table.shape[1]} dimensions; give at most {MOST_DIMENSIONS}")
    if not np.isfinite(table).all():
        raise ValueError(f"{TENSOR} holds numbers that are not finite")
    return table


def _vocabulary(directory: Path) -> dict[str, int]:
    plain, rich = directory / "vocab.txt", directory / "tokenizer.json"
    if plain.exists():
        return listed(plain.read_text(encoding="utf-8"))
    model = orjson.loads(rich.read_bytes())["model"]
    if model["type"] != "WordPiece":
        raise ValueError(f"tokenizer.json is of the type {model['type']}; give one of the type WordPiece")
    return {str(piece): int(place) for piece, place in model["vocab"].items()}
