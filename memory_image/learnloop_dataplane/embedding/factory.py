"""Which embedder the configuration means."""

from pathlib import Path

from learnloop_dataplane.embedding.embedder import Embedder, HashingEmbedder
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.text.analysis import Analyzer


def open_embedder(
    setting: str, dimensions: int, key: str | None, analyzer: Analyzer, *, seconds: float = 10.0
) -> Embedder:
    """`hashing`, `static:///directory`, `onnx:///directory`, or `http(s)://host/v1#model`.

    Dimensions, key and the seconds for an answer are of the last alone.

    What is not asked for is not imported: onnxruntime alone costs 60 MB.

    Raises:
        ConfigError: none of these, or the model is not there.
    """
    if setting == "hashing":
        return HashingEmbedder(analyzer)
    if setting.startswith("static:///"):
        from learnloop_dataplane.embedding.static_table import StaticEmbedder

        return StaticEmbedder(Path(setting.removeprefix("static://")))
    if setting.startswith("onnx:///"):
        from learnloop_dataplane.embedding.onnx_model import OnnxEmbedder

        return OnnxEmbedder(Path(setting.removeprefix("onnx://")))
    url, _, model = setting.partition("#")
    if url.startswith(("http://", "https://")) and model:
        from learnloop_dataplane.embedding.openai_compatible import HttpEmbedder

        return HttpEmbedder(url, model, dimensions, key, seconds=seconds)
    raise ConfigError(
        f"LEARNLOOP_EMBEDDER={setting}: is none of hashing, static:///directory, onnx:///directory and "
        "https://host/v1#model; choose one"
    )
