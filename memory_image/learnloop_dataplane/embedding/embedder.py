"""The embedder port, and the embedder that the configuration names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.errors import ConfigError

Vector = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into unit vectors. `name` is stored with every vector: those of two embedders are never compared."""

    name: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One float32 vector of length 1 for each text, or all zero for a text without words.

        Raises:
            Unavailable: the model does not answer; recall goes by words meanwhile.
        """
        ...


def open_embedder(setting: str, dimensions: int, key: str | None, *, seconds: float = 10.0) -> Embedder | None:
    """`none`, `onnx:///directory`, or `http(s)://host/v1#model`; what is not asked for is not
    imported.

    Args:
        dimensions, key, seconds: of an HTTP embedder: length of its vectors, bearer token, time for an answer.

    Raises:
        ConfigError: the setting is invalid, or the model is not there.
    """
    if setting == "none":
        return None
    if setting.startswith("onnx:///"):
        from learnloop_dataplane.embedding.onnx_model import OnnxEmbedder

        return OnnxEmbedder(Path(setting.removeprefix("onnx://")))
    url, _, model = setting.partition("#")
    if url.startswith(("http://", "https://")) and model:
        from learnloop_dataplane.embedding.openai_compatible import HttpEmbedder

        return HttpEmbedder(url, model, dimensions, key, seconds=seconds)
    raise ConfigError(f"invalid LEARNLOOP_EMBEDDER={setting}: set none, onnx:///directory or https://host/v1#model")
