"""The shield as part of the ONNX graph: what is served obeys the constraints by itself.

The same steps as safety/shield.py, node by node, compared with it in the tests and by the parity check of every run.
"""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from learnloop_environments.base import MASKED
from learnloop_trainer.safety.shield import SLACK, Limit, Shield

Constants = dict[str, NDArray[np.generic]]


class Builder:
    """Collects nodes and constants under names of their own."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: Constants = {}

    def const(self, value: NDArray[np.generic]) -> str:
        name = f"shield.const.{len(self.constants)}"
        self.constants[name] = value
        return name

    def op(self, operator: str, *inputs: str, result: str | None = None, **attributes: Any) -> str:
        name = result or f"shield.{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def number(self, value: float | np.floating) -> str:
        return self.const(np.asarray(value, dtype=np.float32))

    def flags(self, value: NDArray[np.bool_]) -> str:
        return self.const(value)

    def all(self, flags: str) -> str:
        """Whether a whole row [n, d] is true: [n, 1]."""
        as_number = self.op("Cast", flags, to=onnx.TensorProto.FLOAT)
        least = self.op("ReduceMin", as_number, axes=[1], keepdims=1)
        return self.op("Greater", least, self.number(0.5))


def _holds(builder: Builder, limit: Limit) -> str:
    """[n, 1]; see Limit.holds."""
    fails = builder.flags(np.zeros((1, 1), dtype=np.bool_))
    for index, above, below in limit.when:
        number = builder.op("Gather", "observation", builder.const(np.asarray([index], dtype=np.int64)), axis=1)
        if above > -np.inf:
            fails = builder.op("Or", fails, builder.op("LessOrEqual", number, builder.number(above)))
        if below < np.inf:
            fails = builder.op("Or", fails, builder.op("GreaterOrEqual", number, builder.number(below)))
    return builder.op("Not", fails)


def mask(shield: Shield, logits: str, result: str) -> Builder:
    """From logits [n, actions] to masked ones; see Shield.mask."""
    builder = Builder()
    flow, masked = logits, builder.number(float(MASKED))
    for limit in shield.limits:
        hit = builder.op("And", _holds(builder, limit), builder.flags(limit.forbidden[None]))
        flow = builder.op("Where", hit, masked, flow)
    only = shield.only_fallback()[None]
    finite = builder.op("Less", builder.op("Abs", logits), builder.number(np.finfo(np.float32).max))
    builder.op("Where", builder.all(finite), flow, builder.const(only), result=result)
    return builder


def _norm(builder: Builder, action: str, chosen: NDArray[np.bool_]) -> str:
    part = builder.op("Where", builder.flags(chosen[None]), action, builder.number(0.0))
    largest = builder.op("ReduceMax", builder.op("Abs", part), axes=[1], keepdims=1)
    largest = builder.op("Max", largest, builder.number(1e-30))
    scaled = builder.op("Div", part, largest)
    square = builder.op("ReduceSum", builder.op("Mul", scaled, scaled), builder.const(np.asarray([1])), keepdims=1)
    return builder.op("Mul", largest, builder.op("Sqrt", square))


def project(shield: Shield, action: str, result: str) -> Builder:
    """From actions [n, dimensions] to safe ones; see Shield.project."""
    builder = Builder()
    holds = [_holds(builder, limit) for limit in shield.limits]
    flow = action
    for limit, held in zip(shield.limits, holds, strict=True):
        inside = builder.op(
            "Min", builder.op("Max", flow, builder.const(_row(limit.low))), builder.const(_row(limit.high))
        )
        flow = builder.op("Where", held, inside, flow)
    for limit, held in zip(shield.limits, holds, strict=True):
        if limit.max_norm is not None:
            longest = builder.op("Max", _norm(builder, flow, limit.chosen), builder.number(limit.max_norm + 1e-30))
            shrunk = builder.op("Mul", flow, builder.op("Div", builder.number(limit.max_norm), longest))
            apply = builder.op("And", held, builder.flags(limit.chosen[None]))
            flow = builder.op("Where", apply, shrunk, flow)
    good = builder.all(builder.op("Less", builder.op("Abs", action), builder.number(np.finfo(np.float32).max)))
    for limit, held in zip(shield.limits, holds, strict=True):
        satisfied = builder.op("Or", builder.op("Not", held), _inside(builder, limit, flow))
        good = builder.op("And", good, satisfied)
    builder.op("Where", good, flow, builder.const(shield.fallback[None]), result=result)
    return builder


def _row(limit: NDArray[np.float32]) -> NDArray[np.float32]:
    """Infinite limits as the largest numbers: constants of a graph stay finite."""
    assert limit is not None
    largest = np.finfo(np.float32).max
    return np.clip(limit, -largest, largest)[None]


def _inside(builder: Builder, limit: Limit, action: str) -> str:
    slack = builder.op("Mul", builder.op("Max", builder.op("Abs", action), builder.number(1.0)), builder.number(SLACK))
    above = builder.op("GreaterOrEqual", builder.op("Add", action, slack), builder.const(_row(limit.low)))
    below = builder.op("LessOrEqual", builder.op("Sub", action, slack), builder.const(_row(limit.high)))
    inside = builder.all(builder.op("And", above, below))
    if limit.max_norm is None:
        return inside
    longest = builder.number(float(np.float32(limit.max_norm) * (1 + SLACK) + SLACK))
    return builder.op("And", inside, builder.op("LessOrEqual", _norm(builder, action, limit.chosen), longest))
