"""A trained language model as files: one safetensors file that says of itself what it is, and a GGUF adapter.

The file of an adapter has the arrays of PEFT's adapter_model.safetensors under their names, that of whole weights those
of model.safetensors. Its metadata (all text) say the rest:

    learnloop.kind             adapter, or weights
    learnloop.base_sha256      digest of the base model's folder; with other weights the arrays mean nothing
    learnloop.template_sha256  digest of the chat template's text
    learnloop.algorithm, learnloop.job
    adapter_config.json        of an adapter: PEFT's own file, to be written next to adapter_model.safetensors
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_trainer.language import lora
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.store.run_store import pack, unpack

KIND, BASE, TEMPLATE = "learnloop.kind", "learnloop.base_sha256", "learnloop.template_sha256"
CONFIG = "adapter_config.json"
ADAPTER, WEIGHTS = "adapter", "weights"
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Trained:
    """Content of an exported file: its arrays, and what it says of itself."""

    arrays: Arrays
    facts: Mapping[str, str]

    @property
    def adapter(self) -> bool:
        return self.facts.get(KIND) == ADAPTER


def exported(network: LanguageNetwork, facts: Mapping[str, str], config: str | None) -> bytes:
    """The trained weights as one file. `config`: adapter_config.json, where the network learned an adapter."""
    header = {"format": "pt", KIND: WEIGHTS, **facts}
    if network.adapters is not None and config is not None:
        return pack(lora.arrays(network.adapters), header | {KIND: ADAPTER, CONFIG: config})
    return pack(network.arrays(), header)


def read(body: bytes) -> Trained:
    """The inverse of `exported`; raises ValueError for a file that is none of learnloop's."""
    arrays, facts = unpack(body)
    if facts.get(KIND) not in (ADAPTER, WEIGHTS) or BASE not in facts:
        raise ValueError(f"it does not say {KIND} and {BASE}: learnloop did not train this language model")
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
        for name in sorted(trained.arrays):
            stem, separator, _ = name.removeprefix(lora.PREFIX).partition(".lora_B.")
            if not separator:
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
