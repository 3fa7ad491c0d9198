"""A trained reward model as one ONNX file that needs neither torch nor transformers; see learnloop_common.acting."""

import copy
import json
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch

from learnloop_common.acting.reward_model import CENTRE, CONTEXT, FRAMING, KIND, REWARD_MODEL, TOKENISER
from learnloop_trainer.errors import ExportError
from learnloop_trainer.language import lora
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.network import LanguageNetwork

LARGEST = 2**31 - 2**24
"""Bytes of a protobuf message, with room for what is not weights."""
OPSET = 17
EXAMPLE = 5  # tokens of what is recorded


class _Scorer(torch.nn.Module):
    """The base model without its words, and the head at the last token."""

    def __init__(self, model: Any, head: torch.nn.Module) -> None:
        super().__init__()
        self.body, self.head = model.base_model, head

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        attention = torch.ones_like(input_ids)
        seen = self.body(input_ids=input_ids, attention_mask=attention, use_cache=False)
        found: torch.Tensor = self.head(seen.last_hidden_state[:, -1].float()).squeeze(1)
        return found


def exported(
    network: LanguageNetwork, fresh: Any, chat: Chat, context: int, centre: float, facts: Mapping[str, str]
) -> bytes:
    """The file. `fresh`: the base model anew, in float32, which takes what was learned.

    Raises ExportError for a model whose weights do not fit one file, or that cannot be recorded.
    """
    assert network.value_head is not None  # a reward model has one
    _take(network, fresh)
    if sum(part.numel() for part in fresh.base_model.parameters()) * 4 > LARGEST:
        raise ExportError("the model's float32 weights do not fit 2 GiB of ONNX; use a smaller base model")
    # The fused kernels have no ONNX operator; the plain one computes the same.
    fresh.config._attn_implementation = "eager"
    scorer = _Scorer(fresh.cpu().float(), copy.deepcopy(network.value_head).cpu()).eval()
    model = _recorded(scorer)
    said = {
        **facts,
        KIND: REWARD_MODEL,
        TOKENISER: chat.written(),
        FRAMING: json.dumps(chat.framing()),
        CENTRE: repr(centre),
        CONTEXT: str(context),
    }
    onnx.helper.set_model_props(model, said)
    body: bytes = model.SerializeToString()
    return body


def _recorded(scorer: _Scorer) -> Any:
    """The scorer as an ONNX model; raises ExportError."""
    example = torch.ones((1, EXAMPLE), dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    scorer,
                    (example,),
                    path,
                    input_names=["input_ids"],
                    output_names=["score"],
                    dynamic_axes={"input_ids": {1: "tokens"}},
                    opset_version=OPSET,
                    dynamo=False,
                )
        except Exception as error:  # the recorder raises what the model's own code does
            problem = f"the reward model cannot be written as ONNX ({str(error)[:300]}); nothing was stored"
            raise ExportError(problem) from None
        return onnx.load(path)


@torch.no_grad()
def _take(network: LanguageNetwork, fresh: Any) -> None:
    """The learned weights, into a base model that has no adapter."""
    parts = dict(fresh.named_parameters())
    if network.adapters is None:
        for name, part in network.model.named_parameters():
            parts[name].copy_(part.float())
        return
    with lora.merged(network.adapters):
        for name, adapter in network.adapters.items():
            parts[f"{name}.weight"].copy_(adapter.get_base_layer().weight.float())
