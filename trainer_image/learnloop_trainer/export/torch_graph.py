"""The ONNX graph of a policy as a PyTorch module.

`graph.build` is the one place that says what a policy does, from normalisation to the shield; here its nodes are
carried out by PyTorch, one function for each kind of node, so that torch.export and TorchScript record the same policy.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

Values = dict[str, torch.Tensor]
TYPES = {TensorProto.FLOAT: torch.float32, TensorProto.INT64: torch.int64}


def _number(x: torch.Tensor) -> torch.Tensor:
    return x


# Operator → its result, from tensors and attributes. Sizes and axes among the inputs come as attributes (see _Node).
OPERATORS: Mapping[str, Callable[..., torch.Tensor]] = {
    "Abs": torch.abs,
    "Add": torch.add,
    "And": torch.logical_and,
    "ArgMax": lambda x, axis, keepdims: torch.argmax(x, axis, keepdim=bool(keepdims)),
    "Cast": lambda x, to: x.to(TYPES[to]),
    "Clip": torch.clamp,
    "Concat": lambda *x, axis: torch.cat(x, axis),
    "Div": torch.div,
    "Exp": torch.exp,
    "Gather": lambda x, indices, axis: x[:, indices] if axis == 1 else x[indices],
    "Gemm": lambda x, weight, bias, alpha: torch.addmm(bias, x, weight),
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Identity": _number,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Mul": torch.mul,
    "Not": torch.logical_not,
    "OneHot": lambda x, depth: (x.unsqueeze(-1) == torch.arange(depth[0])).to(torch.float32),
    "Or": torch.logical_or,
    "ReduceMax": lambda x, axes, keepdims: torch.amax(x, axes, keepdim=bool(keepdims)),
    "ReduceMin": lambda x, axes, keepdims: torch.amin(x, axes, keepdim=bool(keepdims)),
    "ReduceSum": lambda x, axes, keepdims: torch.sum(x, axes, keepdim=bool(keepdims)),
    "Relu": torch.relu,
    "Sqrt": torch.sqrt,
    "Sub": torch.sub,
    "Tanh": torch.tanh,
    "Where": torch.where,
}
# Operator → (position among its inputs, name) of what must be known when the graph is recorded.
STATIC = {"Gather": (1, "indices"), "OneHot": (1, "depth"), "ReduceSum": (1, "axes"), "Split": (1, "sizes")}


class TorchGraph(torch.nn.Module):
    """From `observation` [batch, observations] to the graph's outputs, in their order."""

    def __init__(self, body: bytes) -> None:
        """Of a serialised graph made by `graph.build`; raises KeyError for a kind of node it does not have."""
        super().__init__()
        graph = onnx.load_from_string(body).graph
        constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
        self.outputs = [item.name for item in graph.output]
        self.observations = int(graph.input[0].type.tensor_type.shape.dim[1].dim_value)
        self._nodes = [_node(node, constants) for node in graph.node]
        used = {name for _, inputs, _, _ in self._nodes for name in inputs}
        self._names = {name: f"constant_{number}" for number, name in enumerate(sorted(used & set(constants)))}
        for name, buffer in self._names.items():
            self.register_buffer(buffer, torch.from_numpy(np.array(constants[name])))

    def forward(self, observation: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """One tensor, or a tuple where the graph has several outputs."""
        values: Values = {name: self.get_buffer(buffer) for name, buffer in self._names.items()}
        values["observation"] = observation
        for operator, inputs, outputs, attributes in self._nodes:
            given = [values[name] for name in inputs]
            if operator == "Split":
                parts = torch.split(given[0], attributes["sizes"], attributes["axis"])
                values.update(zip(outputs, parts, strict=True))
            else:
                values[outputs[0]] = OPERATORS[operator](*given, **attributes)
        results = tuple(values[name] for name in self.outputs)
        return results if len(results) > 1 else results[0]


_Node = tuple[str, list[str], list[str], dict[str, Any]]


def _node(node: onnx.NodeProto, constants: Mapping[str, np.ndarray[Any, Any]]) -> _Node:
    """Operator, names of the tensors it takes and gives, and everything else by name."""
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    inputs = list(node.input)
    if node.op_type in STATIC:
        position, name = STATIC[node.op_type]
        attributes[name] = np.atleast_1d(constants[inputs[position]]).tolist()
        inputs = inputs[:position]  # OneHot's off and on values, which follow, are 0 and 1
    if node.op_type != "Split" and node.op_type not in OPERATORS:
        raise KeyError(node.op_type)
    return node.op_type, inputs, list(node.output), attributes
