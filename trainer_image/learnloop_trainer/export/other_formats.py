"""Beside ONNX: torch.export's .pt2 and TorchScript, recorded from the same graph and checked alike.

Both take `observation` float32 [batch, observations], any batch size, and give the ONNX graph's outputs in its order:
`action`, then `logits` where it has them. The facts in the ONNX metadata travel along as the extra file learnloop.json.
"""

import io
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_trainer.errors import ExportError
from learnloop_trainer.export.torch_graph import TorchGraph

FACTS = "learnloop.json"
EXAMPLE = 2  # rows of what is recorded: one row would be taken for a fixed size
LARGEST = 1 << 20  # batch that a .pt2 promises to take
Runner = Callable[[torch.Tensor], Any]


def _facts(body: bytes) -> str:
    found = {item.key: item.value for item in onnx.load_from_string(body).metadata_props}
    return json.dumps(found, sort_keys=True)


def _example(graph: TorchGraph) -> tuple[torch.Tensor]:
    return (torch.zeros((EXAMPLE, graph.observations)),)


def _save_pt2(body: bytes) -> bytes:
    graph, file = TorchGraph(body).eval(), io.BytesIO()
    batch = torch.export.Dim("batch", min=1, max=LARGEST)
    sizes = {"observation": {0: batch}}
    program = torch.export.export(graph, _example(graph), dynamic_shapes=sizes, strict=False)  # strict before 2.7
    torch.export.save(program, file, extra_files={FACTS: _facts(body)})
    return file.getvalue()


def _load_pt2(body: bytes) -> Runner:
    return torch.export.load(io.BytesIO(body)).module()


def _save_torchscript(body: bytes) -> bytes:
    graph, file = TorchGraph(body).eval(), io.BytesIO()
    with torch.no_grad():
        traced = torch.jit.trace(graph, _example(graph))  # type: ignore[no-untyped-call]
    torch.jit.save(traced, file, _extra_files={FACTS: _facts(body)})
    return file.getvalue()


def _load_torchscript(body: bytes) -> Runner:
    loaded: Runner = torch.jit.load(io.BytesIO(body))  # type: ignore[no-untyped-call]
    return loaded


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a policy down, and to read it again."""

    save: Callable[[bytes], bytes]  # from a serialised ONNX graph
    load: Callable[[bytes], Runner]


FORMATS = {
    "pt2": Format(_save_pt2, _load_pt2),
    "torchscript": Format(_save_torchscript, _load_torchscript),
}


def convert(body: bytes, kind: str) -> bytes:
    """The policy of a serialised ONNX graph in another format; raises ExportError when PyTorch cannot record it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated: the field's description says so
            return FORMATS[kind].save(body)
    except Exception as error:  # torch.export's and TorchScript's exceptions share no base class below Exception
        raise ExportError(f"the policy cannot be exported as {kind}: {str(error)[:200]}; nothing was stored") from None


class TorchPolicy:
    """A policy in one of these formats, loaded from its bytes as somebody else would; an export.parity.Exported."""

    def __init__(self, body: bytes, kind: str, *, continuous: bool, hybrid: bool = False) -> None:
        """Raises ExportError when the bytes cannot be loaded again."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._run = FORMATS[kind].load(body)
        except Exception as error:  # as above
            raise ExportError(f"the exported {kind} cannot be loaded again: {str(error)[:200]}") from None
        self.continuous, self.hybrid = continuous, hybrid

    def _outputs(self, observation: Observations) -> list[NDArray[Any]]:
        with torch.inference_mode():
            results = self._run(torch.from_numpy(np.ascontiguousarray(observation)))
        return [np.asarray(item.numpy()) for item in (results if isinstance(results, list | tuple) else [results])]

    def run(self, observation: Observations) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """See Exported."""
        results = self._outputs(observation)
        return results[0], results[0 if self.continuous else 1]

    def logits(self, observation: Observations) -> NDArray[np.float32]:
        """See Exported."""
        return self._outputs(observation)[1]
