"""Low-rank adapters (Hu et al., 2021, arXiv 2106.09685) on a frozen model, and their files.

y = W x + (alpha / rank) B A x, with A [rank, in] and B [out, rank]; B begins at 0, so the adapter begins as nothing.
The names and shapes of the exported arrays are those of the PEFT library, which vLLM and transformers load.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import linear

from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Purpose, generator

PREFIX, SECOND = "base_model.model.", ".lora_B.weight"
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Adapted(nn.Module):
    """A frozen linear layer with an adapter beside it."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, draws: np.random.Generator) -> None:
        """`draws` decides A, uniform in ±1/sqrt(in) as PEFT begins it."""
        super().__init__()
        self.base = base.requires_grad_(False)
        reach, device = 1.0 / math.sqrt(base.in_features), base.weight.device
        first = draws.uniform(-reach, reach, (rank, base.in_features)).astype(np.float32)
        self.lora_A = nn.Parameter(torch.from_numpy(first).to(device))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank, device=device))
        self.scale, self.on = alpha / rank, True
        self.merged: torch.Tensor | None = None  # the sum of both, while only sampling goes on

    @property
    def weight(self) -> torch.Tensor:
        """The frozen layer's, for libraries that look at its type."""
        return self.base.weight

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """See the module's equation; without its second term while switched off."""
        if not self.on:
            return linear(seen, self.base.weight, self.base.bias)
        if self.merged is not None:
            return linear(seen, self.merged, self.base.bias)
        low = linear(linear(seen.to(self.lora_A.dtype), self.lora_A), self.lora_B)
        return linear(seen, self.base.weight, self.base.bias) + (self.scale * low).to(seen.dtype)


def attach(model: nn.Module, layers: Sequence[str], rank: int, alpha: float, seed: int) -> dict[str, Adapted]:
    """Freeze the model and put an adapter on each linear layer whose last name is in `layers`; by full name.

    Raises ConfigError when the model has no such layer.
    """
    model.requires_grad_(False)
    found = [(name, part) for name, part in model.named_modules() if name.rpartition(".")[2] in layers]
    if not found or not all(isinstance(part, nn.Linear) for _, part in found):
        kinds = sorted({name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Linear)})
        fix = f"name some of its linear layers: {', '.join(kinds[:16])}"
        raise ConfigError("lora.layers", ", ".join(layers), "names no linear layers of this model", fix)
    adapters: dict[str, Adapted] = {}
    for number, (name, part) in enumerate(found):
        assert isinstance(part, nn.Linear)  # checked above
        adapters[name] = Adapted(part, rank, alpha, generator(Purpose.WEIGHTS, seed, number))
        model.set_submodule(name, adapters[name])
    return adapters


def can_be_added(dtype: torch.dtype) -> bool:
    """May an adapter be added to weights of this type? In a bfloat16's 8 bits most of it would be rounded away."""
    return dtype != torch.bfloat16


def attach_trained(model: nn.Module, given: Mapping[str, NDArray[np.generic]], scale: float) -> dict[str, Adapted]:
    """Put a trained adapter beside a model's layers, as servers do; `scale`: alpha / rank. By full name.

    Raises ValueError where an array is missing, left over or fits no linear layer.
    """
    model.requires_grad_(False)
    parts = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    adapters: dict[str, Adapted] = {}
    for name in sorted(name for name in given if name.endswith(SECOND)):
        stem, rank = name.removeprefix(PREFIX).removesuffix(SECOND), given[name].shape[-1]
        if stem not in parts:
            raise ValueError(f"{stem} is of another model")
        adapters[stem] = Adapted(parts[stem], rank, scale * rank, np.random.default_rng(0))
        model.set_submodule(stem, adapters[stem])
    load(adapters, given)
    return adapters


@contextmanager
def switched_off(adapters: Mapping[str, Adapted]) -> Iterator[None]:
    """The base model alone speaks."""
    before = {name: adapter.on for name, adapter in adapters.items()}
    for adapter in adapters.values():
        adapter.on = False
    try:
        yield
    finally:
        for name, adapter in adapters.items():
            adapter.on = before[name]


@contextmanager
def merged(adapters: Mapping[str, Adapted]) -> Iterator[None]:
    """One multiplication a layer while only sampling goes on; the frozen weights are not touched."""
    with torch.no_grad():
        for adapter in adapters.values():
            low = adapter.scale * (adapter.lora_B @ adapter.lora_A)
            adapter.merged = (adapter.base.weight.to(low.dtype) + low).to(adapter.base.weight.dtype)
    try:
        yield
    finally:
        for adapter in adapters.values():
            adapter.merged = None


def arrays(adapters: Mapping[str, Adapted]) -> dict[str, NDArray[np.float32]]:
    """The adapter's arrays under PEFT's names."""
    found: dict[str, NDArray[np.float32]] = {}
    for name, adapter in adapters.items():
        for part in ("lora_A", "lora_B"):
            found[f"{PREFIX}{name}.{part}.weight"] = getattr(adapter, part).detach().cpu().numpy().astype(np.float32)
    return found


def load(adapters: Mapping[str, Adapted], given: Mapping[str, NDArray[np.generic]]) -> None:
    """The inverse of `arrays`; raises ValueError naming the first array that is missing, left over or misshapen."""
    wanted = arrays(adapters)
    for name in sorted(set(wanted) ^ set(given)):
        raise ValueError(f"{name} is {'missing' if name in wanted else 'of another adapter'}")
    with torch.no_grad():
        for name, adapter in adapters.items():
            for part in ("lora_A", "lora_B"):
                array, own = given[f"{PREFIX}{name}.{part}.weight"], getattr(adapter, part)
                if array.shape != tuple(own.shape):
                    raise ValueError(f"{name}.{part} has shape {array.shape}, {tuple(own.shape)} was expected")
                own.copy_(torch.from_numpy(np.array(array, dtype=np.float32)))


def configuration(layers: Sequence[str], rank: int, alpha: float, base: str) -> str:
    """adapter_config.json as PEFT 0.10 and later read it; `base`: where the base model is from."""
    facts = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(layers),
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "inference_mode": True,
        "modules_to_save": None,
    }
    return json.dumps(facts, indent=2, sort_keys=True)
