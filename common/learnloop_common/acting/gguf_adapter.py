"""An adapter as llama.cpp reads it: trainers export it, and gateways make it for their server.

Needs the package gguf, which the trainer's and the serving image have.
"""

import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
PREFIX = "base_model.model."
"""Before the name of each array, as PEFT writes it."""
TURNED = ("LlamaForCausalLM", "MistralForCausalLM")
"""Architectures whose query and key rows GGUF keeps in another order (the two halves of rotary positions, interleaved).
"""
GGUF_NAMES = {name: "llama" for name in TURNED} | {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}


def gguf_adapter(arrays: Arrays, config: Mapping[str, Any], alpha: float) -> bytes | None:
    """The adapter as llama.cpp reads it (`--lora`); None for an architecture whose names are not known here.

    `arrays`: under PEFT's names; `config`: the base model's config.json. Format: ggml-org/llama.cpp, docs of GGUF, and
    its loader of adapters: tensors NAME.lora_a [rank, in] and NAME.lora_b [out, rank], general.type adapter.
    """
    import gguf

    architecture = next((name for name in config.get("architectures") or () if name in GGUF_NAMES), None)
    if architecture is None:
        return None
    model = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == GGUF_NAMES[architecture])
    called = gguf.get_tensor_name_map(model, int(config["num_hidden_layers"]))
    with tempfile.TemporaryFile() as file:  # without a name: a process that is killed here leaves nothing
        writer = gguf.GGUFWriter(f"/proc/self/fd/{file.fileno()}", GGUF_NAMES[architecture])
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(alpha))
        for name, array in sorted(arrays.items()):
            stem, _, side = name.removeprefix(PREFIX).removesuffix(".weight").rpartition(".")
            target = called.get_name(stem)
            if target is None:
                return None
            body = np.ascontiguousarray(np.asarray(array, dtype=np.float32))
            if side == "lora_B" and architecture in TURNED:
                body = _turned(body, stem, config)
            writer.add_tensor(f"{target}.weight.{side.lower()}", body)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return file.read()


def _turned(second: NDArray[np.float32], stem: str, config: Mapping[str, Any]) -> NDArray[np.float32]:
    """Rows of a query or key in GGUF's order: [heads, 2, half] becomes [heads, half, 2]."""
    heads = int(config["num_attention_heads"])
    if stem.endswith("k_proj"):
        heads = int(config.get("num_key_value_heads") or heads)
    elif not stem.endswith("q_proj"):
        return second
    rows, rank = second.shape
    halves = second.reshape(heads, 2, rows // heads // 2, rank)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, rank))
