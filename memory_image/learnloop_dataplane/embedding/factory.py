"""Which embedder the configuration means."""

from pathlib import Path

from learnloop_dataplane.embedding.embedder import Embedder, HashingEmbedder
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.text.analysis import Analyzer


def open_embedder(setting: str, dimensions: int, key: str | None, analyzer: Analyzer) -> Embedder:
    """`hashing`, `onnx:///directory`, or `http(s)://host/v1#model` with its dimensions and key.

    What is not asked for is not imported: onnxruntime alone costs 60 MB.

    Raises:
        ConfigError: none of these, or the model is not there.
    """
    if setting == "hashing":
        return HashingEmbedder(analyzer)
    if setting.startswith("onnx:///"):
        from learnloop_dataplane.embedding.onnx_model import OnnxEmbedder

        return OnnxEmbedder(Path(setting.removeprefix("onnx://")))
    url, _, model = setting.partition("#")
    if url.startswith(("http://", "https://")) and model:
        from learnloop_dataplane.embedding.openai_compatible import HttpEmbedder

        return HttpEmbedder(url, model, dimensions, key)
    raise ConfigError(
        f"LEARNLOOP_EMBEDDER={setting}: is none of hashing, onnx:///directory and https://host/v1#model; choose one"
    )
