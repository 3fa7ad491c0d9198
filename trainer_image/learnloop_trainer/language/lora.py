"""Low-rank adapters (Hu et al., 2021, arXiv 2106.09685) of the PEFT library on a frozen model, and their files.

PEFT is imported where an adapter is made: it takes seconds, and other runs need none.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from learnloop_environments.errors import ConfigError

PREFIX, SECOND = "base_model.model.", ".lora_B.weight"
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ADAPTER = "default"
Adapters = dict[str, Any]
"""PEFT's layers by the full name of the linear layer that each adapts."""


def attach(model: nn.Module, layers: Sequence[str], rank: int, alpha: float, seed: int) -> Adapters:
    """Freeze the model and put an adapter on each linear layer whose last name is in `layers`.

    Raises ConfigError when the model has no such layer.
    """
    parts = [part for name, part in model.named_modules() if name.rpartition(".")[2] in layers]
    if not parts or not all(isinstance(part, nn.Linear) for part in parts):
        kinds = sorted({name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Linear)})
        fix = f"name some of its linear layers: {', '.join(kinds[:16])}"
        raise ConfigError("lora.layers", ", ".join(layers), "names no linear layers of this model", fix)
    return _injected(model, layers, rank, alpha, seed)


def attach_trained(model: nn.Module, given: Mapping[str, NDArray[np.generic]], scale: float) -> Adapters:
    """Put a trained adapter on a model's layers, as servers do; `scale`: alpha / rank.

    Raises ValueError where an array is missing, left over or fits no linear layer.
    """
    ranks = {name.removeprefix(PREFIX).removesuffix(SECOND): given[name].shape[-1] for name in given if SECOND in name}
    strange = sorted(ranks.keys() - {name for name, part in model.named_modules() if isinstance(part, nn.Linear)})
    if strange:
        raise ValueError(f"{strange[0]} is of another model")
    if not ranks:
        raise ValueError(f"has no array that ends in {SECOND}")
    rank = next(iter(ranks.values()))
    adapters = _injected(model, sorted(ranks), rank, scale * rank, 0)
    load(adapters, given)
    return adapters


def _injected(model: nn.Module, targets: Sequence[str], rank: int, alpha: float, seed: int) -> Adapters:
    from peft import inject_adapter_in_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(_config(targets, rank, alpha), model, adapter_name=ADAPTER)
    adapters = {name: part for name, part in model.named_modules() if hasattr(part, "get_delta_weight")}
    for layer in adapters.values():
        for part in (layer.lora_A, layer.lora_B):
            part.float()  # where the frozen weights are bfloat16, most of an update would be rounded away
    return adapters


def _config(targets: Sequence[str], rank: int, alpha: float, base: str | None = None) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]
        target_modules=list(targets),
        inference_mode=base is not None,
    )


def can_be_added(dtype: torch.dtype) -> bool:
    """May an adapter be added to weights of this type? In a bfloat16's 8 bits most of it would be rounded away."""
    return dtype != torch.bfloat16


@contextmanager
def switched_off(adapters: Mapping[str, Any]) -> Iterator[None]:
    for layer in adapters.values():
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in adapters.values():
            layer.enable_adapters(True)


@contextmanager
def merged(adapters: Mapping[str, Any]) -> Iterator[None]:
    """One multiplication a layer while only sampling goes on; the frozen weights come back to the bit."""
    weights = {name: layer.get_base_layer().weight for name, layer in adapters.items()}
    frozen = {name: weight.data for name, weight in weights.items()}
    with torch.no_grad():
        for name, layer in adapters.items():
            weights[name].data = (frozen[name].float() + layer.get_delta_weight(ADAPTER)).to(frozen[name].dtype)
    try:
        with switched_off(adapters):
            yield
    finally:
        for name, weight in weights.items():
            weight.data = frozen[name]


def _parts(adapters: Mapping[str, Any]) -> dict[str, nn.Parameter]:
    """The trainable parts under the names of PEFT's files."""
    return {
        f"{PREFIX}{name}.{part}.weight": getattr(layer, part)[ADAPTER].weight
        for name, layer in adapters.items()
        for part in ("lora_A", "lora_B")
    }


def arrays(adapters: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    return {name: part.detach().float().cpu().numpy().copy() for name, part in _parts(adapters).items()}


def load(adapters: Mapping[str, Any], given: Mapping[str, NDArray[np.generic]]) -> None:
    """The inverse of `arrays`; raises ValueError naming the first array that is missing, left over or misshapen."""
    wanted = _parts(adapters)
    for name in sorted(set(wanted) ^ set(given)):
        raise ValueError(f"{name} is {'missing' if name in wanted else 'of another adapter'}")
    with torch.no_grad():
        for name, own in wanted.items():
            if given[name].shape != tuple(own.shape):
                raise ValueError(f"{name} has shape {given[name].shape}, {tuple(own.shape)} was expected")
            own.copy_(torch.from_numpy(np.array(given[name], dtype=np.float32)))


def configuration(layers: Sequence[str], rank: int, alpha: float, base: str) -> str:
    """adapter_config.json; `base`: where the base model is from."""
    return json.dumps(_config(layers, rank, alpha, base).to_dict(), indent=2, sort_keys=True, default=sorted)
