"""Opens the embedder that the configuration names."""

from pathlib import Path

from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.errors import ConfigError


def open_embedder(setting: str, dimensions: int, key: str | None, *, seconds: float = 10.0) -> Embedder | None:
    """`none`, `static:///directory`, `onnx:///directory`, or `http(s)://host/v1#model`; what is not asked for is not
    imported.

    Args:
        dimensions, key, seconds: of an HTTP embedder: length of its vectors, bearer token, time for an answer.

    Raises:
        ConfigError: the setting is invalid, or the model is not there.
    """
    if setting == "none":
        return None
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
        f"invalid LEARNLOOP_EMBEDDER={setting}: set none, static:///directory, onnx:///directory or "
        "https://host/v1#model"
    )
