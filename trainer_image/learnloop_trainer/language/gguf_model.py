"""A folder of a Llama as the GGUF file of the same model, in float32: llama.cpp reads nothing else.

For small models that are made here. What people publish as GGUF is quantised by llama.cpp's own programs.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Floats = NDArray[np.float32]


def turned(weight: Floats, heads: int) -> Floats:
    """Rows of a query or key in GGUF's order: within each head the two halves take turns."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def write(folder: Path, path: Path) -> None:
    """Write the model of `folder`, which has a byte-pair tokeniser and tied embeddings, to `path`."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    arrays = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(path, "llama")
    heads, layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
    kv = int(config.get("num_key_value_heads") or heads)
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(layers)
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_rope_dimension_count(int(config["hidden_size"]) // heads)
    theta = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta", 10_000.0)
    writer.add_rope_freq_base(float(theta))
    _vocabulary(writer, folder, int(config["vocab_size"]), int(config["eos_token_id"]))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for name, array in sorted(arrays.items()):
        body = np.ascontiguousarray(array.astype(np.float32))
        if name.endswith("q_proj.weight"):
            body = turned(body, heads)
        elif name.endswith("k_proj.weight"):
            body = turned(body, kv)
        target = names.get_name(name, try_suffixes=(".weight",))
        assert target is not None, name
        writer.add_tensor(target, body)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary(writer: Any, folder: Path, size: int, stop: int) -> None:
    import gguf

    document = json.loads((folder / "tokenizer.json").read_text())
    words = {place: word for word, place in document["model"]["vocab"].items()}
    special = {item["id"]: item["content"] for item in document.get("added_tokens", ())}
    words |= special
    tokens = [words.get(place, f"[unused{place}]") for place in range(size)]
    kinds = [gguf.TokenType.CONTROL if place in special else gguf.TokenType.NORMAL for place in range(size)]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in document["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(stop)
    writer.add_bos_token_id(stop)
    writer.add_add_bos_token(False)
