"""A trained language model as files: one safetensors file that says of itself what it is, and a GGUF adapter.

The file of an adapter has the arrays of PEFT's adapter_model.safetensors under their names, that of whole weights those
of model.safetensors. Its metadata (all text) say the rest:

    learnloop.kind             adapter, or weights
    learnloop.base_sha256      digest of the base model's folder; beside other weights the arrays mean nothing
    learnloop.template_sha256  digest of the chat template's text
    learnloop.algorithm, learnloop.job
    adapter_config.json        of an adapter: PEFT's own file, to be written beside adapter_model.safetensors
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_trainer.language import lora
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.store.array_container import pack, unpack

KIND, BASE, TEMPLATE = "learnloop.kind", "learnloop.base_sha256", "learnloop.template_sha256"
CONFIG = "adapter_config.json"
ADAPTER, WEIGHTS = "adapter", "weights"
Arrays = Mapping[str, NDArray[Any]]
TURNED = ("LlamaForCausalLM", "MistralForCausalLM")
"""Architectures whose query and key rows GGUF keeps in another order (the two halves of rotary positions, interleaved).
"""
GGUF_NAMES = {name: "llama" for name in TURNED} | {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}


@dataclass(frozen=True, slots=True)
class Trained:
    """What an exported file holds: its arrays, and what it says of itself."""

    arrays: Arrays
    facts: Mapping[str, str]

    @property
    def adapter(self) -> bool:
        """Is it an adapter, or are these whole weights?"""
        return self.facts.get(KIND) == ADAPTER


def exported(network: LanguageNetwork, facts: Mapping[str, str], config: str | None) -> bytes:
    """The trained weights as one file. `config`: adapter_config.json, where the network learned an adapter."""
    said = {"format": "pt", KIND: WEIGHTS, **facts}
    if network.adapters is not None and config is not None:
        return pack(lora.arrays(network.adapters), said | {KIND: ADAPTER, CONFIG: config})
    with torch.no_grad():
        arrays = {name: part.float().cpu().numpy() for name, part in network.model.named_parameters()}
    return pack(arrays, said)


def read(body: bytes) -> Trained:
    """The inverse of `exported`; raises ValueError for a file that is none of learnloop's."""
    arrays, facts = unpack(body)
    if facts.get(KIND) not in (ADAPTER, WEIGHTS) or BASE not in facts:
        raise ValueError(f"it does not say {KIND} and {BASE}: it is no language model that learnloop trained")
    return Trained(arrays, facts)


def put_into(model: Any, trained: Trained, scale: float | None = None) -> None:
    """Give a fresh base model what was trained: whole weights, or an adapter that is added to them.

    `scale`: alpha / rank of the adapter. Raises ValueError where an array fits nothing.
    """
    parts = dict(model.named_parameters())
    with torch.no_grad():
        if not trained.adapter:
            for name in sorted(set(parts) ^ set(trained.arrays)):
                raise ValueError(f"{name} is {'missing' if name in parts else 'of another model'}")
            for name, array in trained.arrays.items():
                _copy(parts[name], np.asarray(array), name)
            return
        assert scale is not None  # an adapter has one
        for name in trained.arrays:
            stem, found, _ = name.removeprefix(lora.PREFIX).partition(".lora_B.")
            if not found:
                continue
            first = np.asarray(trained.arrays[f"{lora.PREFIX}{stem}.lora_A.weight"], dtype=np.float32)
            second = np.asarray(trained.arrays[name], dtype=np.float32)
            own = parts.get(f"{stem}.weight")
            if own is None or tuple(own.shape) != (second.shape[0], first.shape[1]):
                raise ValueError(f"{stem} is of another model")
            low = torch.from_numpy(second).to(own.device) @ torch.from_numpy(first).to(own.device)
            own.copy_((own.float() + scale * low).to(own.dtype))


def _copy(own: torch.Tensor, array: NDArray[Any], name: str) -> None:
    if tuple(own.shape) != array.shape:
        raise ValueError(f"{name} has shape {array.shape}, {tuple(own.shape)} was expected")
    own.copy_(torch.from_numpy(np.array(array, dtype=np.float32)))


def gguf_adapter(arrays: Arrays, config: Mapping[str, Any], alpha: float) -> bytes | None:
    """The adapter as llama.cpp reads it (`--lora`); None for an architecture whose names are not known here.

    `arrays`: under PEFT's names; `config`: the base model's config.json. Format: ggml-org/llama.cpp, docs of GGUF, and
    its loader of adapters: tensors NAME.lora_a [rank, in] and NAME.lora_b [out, rank], general.type adapter.
    """
    import gguf

    architecture = next((name for name in config.get("architectures") or () if name in GGUF_NAMES), None)
    if architecture is None:
        return None
    known = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == GGUF_NAMES[architecture])
    called = gguf.get_tensor_name_map(known, int(config["num_hidden_layers"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adapter.gguf"
        writer = gguf.GGUFWriter(path, GGUF_NAMES[architecture])
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(alpha))
        for name, array in sorted(arrays.items()):
            stem, _, side = name.removeprefix(lora.PREFIX).removesuffix(".weight").rpartition(".")
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
        return path.read_bytes()


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
