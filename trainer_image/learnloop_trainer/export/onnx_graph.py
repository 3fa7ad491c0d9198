"""The ONNX graph of a policy and of the shield over it, written node by node.

Signature of a policy with discrete actions: `observation` float32 [batch, observations] in; `action` int64 [batch]
(greedy) and `logits` float32 [batch, actions] out. For DQN the logits are Q-values. With continuous actions: `action`
float32 [batch, actions] out, squashed, scaled to the environment's bounds and projected onto them in the graph. With
hybrid ones its first number is the greedy choice, and `logits` float32 [batch, choices] of the choices go out too.
A policy that draws its numbers gives `mean` and `deviation` float32 [batch, numbers] too, before tanh and any bounds.
Where observations were normalised in training, the graph normalises them.

A shield obeys its constraints by itself: the steps of action_shield.py, node by node, compared with it in the tests and
by the parity check of every run. The graph of its fallback policy is part of this one. What the network wanted goes out
as `unshielded`, the logits or the action before it.

Opset 17 and IR version 8 load on onnxruntime ≥ 1.12.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from learnloop_common.acting.policy import UNSHIELDED
from learnloop_environments.spaces import MASKED, Bounds
from learnloop_trainer.action_shield import LEAST, SLACK, Limit, Shield
from learnloop_trainer.fallback_policy import OPSET
from learnloop_trainer.neural.observation_normalisation import LIMIT, MEAN, SCALE

IR_VERSION = 8
Constants = dict[str, NDArray[np.generic]]
Head = tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto], Constants]
OPERATORS = {"tanh": "Tanh", "relu": "Relu"}


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

    def finite(self, numbers: str) -> str:
        """Whether a whole row [n, d] is finite: [n, 1]."""
        return self.all(self.op("Less", self.op("Abs", numbers), self.number(np.finfo(np.float32).max)))


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
    flow, good = _masked(builder, shield, logits), builder.finite(logits)
    only = builder.const(shield.only_fallback())
    if shield.policy is not None:
        best, free = (builder.op("ReduceMax", each, axes=[1], keepdims=1) for each in (logits, flow))
        good = builder.op("And", good, builder.op("LessOrEqual", best, free))
        instead = builder.op("Max", shield.policy.result, builder.number(LEAST))
        instead = _masked(builder, shield, instead)
        instead = builder.op("Where", builder.finite(shield.policy.result), instead, only)
        best = builder.op("ArgMax", instead, axis=1, keepdims=0)
        count, ends = np.asarray(len(shield.limits[0].forbidden)), np.asarray([0, 1], dtype=np.float32)
        hot = builder.op("OneHot", best, builder.const(count), builder.const(ends))
        chosen = builder.op("Greater", hot, builder.number(0.5))
        only = builder.op("Where", chosen, builder.number(0.0), builder.number(float(MASKED)))
    builder.op("Where", good, flow, only, result=result)
    return builder


def _masked(builder: Builder, shield: Shield, logits: str) -> str:
    flow, masked = logits, builder.number(float(MASKED))
    for limit in shield.limits:
        hit = builder.op("And", _holds(builder, limit), builder.flags(limit.forbidden[None]))
        flow = builder.op("Where", hit, masked, flow)
    return flow


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
    if shield.policy is not None:
        action = builder.op("Where", _obeyed(builder, shield, holds, action), action, shield.policy.result)
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
    good = builder.op("And", builder.finite(action), _obeyed(builder, shield, holds, flow))
    builder.op("Where", good, flow, builder.const(shield.fallback[None]), result=result)
    return builder


def _obeyed(builder: Builder, shield: Shield, holds: list[str], action: str) -> str:
    """[n, 1]: whether actions are finite and break no limit that holds."""
    good = builder.finite(action)
    for limit, held in zip(shield.limits, holds, strict=True):
        satisfied = builder.op("Or", builder.op("Not", held), _inside(builder, limit, action))
        good = builder.op("And", good, satisfied)
    return good


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


@dataclass(frozen=True, slots=True)
class Deviation:
    """The place of the numbers' deviation: log sigma, clipped to [least, most]."""

    array: str | None  # a parameter of this name [numbers]; None: the outputs that follow the means
    least: float
    most: float


def build(
    arrays: Mapping[str, NDArray[np.float32]],
    name: str,
    activation: str,
    metadata: Mapping[str, str],
    bounds: Bounds | None = None,
    shield: Shield | None = None,
    chooser: str | None = None,
    deviation: Deviation | None = None,
) -> bytes:
    """The perceptron `name` among the arrays with what makes actions of its outputs, checked and serialised.

    Deterministic: the same weights and metadata give the same bytes. With `bounds` the first of the perceptron's
    outputs are the logits of the choices, if any, and the means before tanh. With `shield` no output breaks a
    constraint. `chooser`: a perceptron whose best output, as a one-hot vector, is what `name` sees in addition to the
    observation. `deviation`: where the policy draws its numbers, which no shield watches then.
    """
    weights: Constants = {key: array for key, array in arrays.items() if key.startswith(f"{name}.")}
    layers = len(weights) // 2
    last = f"{name}.{layers - 1}"
    if bounds is not None:
        for key in (f"{last}.weight", f"{last}.bias"):
            deviations = len(bounds.low) if deviation is not None and deviation.array is None else 0
            weights[key] = np.ascontiguousarray(weights[key][..., : _outputs(bounds) + deviations])
    if deviation is not None and deviation.array is not None:
        weights[deviation.array] = arrays[deviation.array]
    observations = weights[f"{name}.0.weight"].shape[0]
    actions = weights[f"{last}.weight"].shape[1] if bounds is None else len(bounds.low)
    nodes = _perceptron(name, layers, activation)
    if MEAN in arrays:
        nodes = [*_glasses(), *_perceptron(name, layers, activation, "normalised")]
        weights |= {MEAN: arrays[MEAN], SCALE: arrays[SCALE]}
        weights |= {"least": np.asarray(-LIMIT, dtype=np.float32), "most": np.asarray(LIMIT, dtype=np.float32)}
    if chooser is not None:
        above = {key: array for key, array in arrays.items() if key.startswith(f"{chooser}.")}
        goals = above[f"{chooser}.{len(above) // 2 - 1}.bias"].shape[0]
        nodes = [*_choice(chooser, len(above) // 2, activation), *_perceptron(name, layers, activation, "with.goal")]
        weights |= above | {"goals": np.asarray([goals]), "off.on": np.asarray([0, 1], dtype=np.float32)}
        observations -= goals
    head, outputs, constants = _discrete(actions, shield) if bounds is None else _continuous(bounds, shield, deviation)
    fallback = onnx.GraphProto() if shield is None or shield.policy is None else shield.policy.graph
    graph = helper.make_graph(
        [*fallback.node, *nodes, *head],
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", observations])],
        outputs,
        [
            *fallback.initializer,
            *(numpy_helper.from_array(array, key) for key, array in (weights | constants).items()),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="learnloop")
    model.ir_version = IR_VERSION
    sizes = {"learnloop.observations": str(observations), "learnloop.actions": str(actions)}
    helper.set_model_props(model, dict(metadata) | sizes)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def _outputs(bounds: Bounds) -> int:
    """How many of a perceptron's outputs decide: logits of the choices and means."""
    return bounds.choices + len(bounds.low) - bool(bounds.choices)


def _glasses() -> list[onnx.NodeProto]:
    """From `observation` to `normalised`, as normalising.normalised does it."""
    return [
        helper.make_node("Sub", ["observation", MEAN], ["centred"]),
        helper.make_node("Mul", ["centred", SCALE], ["rescaled"]),
        helper.make_node("Clip", ["rescaled", "least", "most"], ["normalised"]),
    ]


def _choice(name: str, layers: int, activation: str) -> list[onnx.NodeProto]:
    """The observation together with the chooser's best output as a one-hot vector: `with.goal`."""
    return [
        *_perceptron(name, layers, activation, result="goal.values"),
        helper.make_node("ArgMax", ["goal.values"], ["goal"], axis=1, keepdims=0),
        helper.make_node("OneHot", ["goal", "goals", "off.on"], ["goal.told"]),
        helper.make_node("Concat", ["observation", "goal.told"], ["with.goal"], axis=1),
    ]


def _perceptron(
    name: str, layers: int, activation: str, source: str = "observation", result: str = "raw"
) -> list[onnx.NodeProto]:
    nodes, flow, end = [], source, result
    for layer in range(layers):
        result = end if layer == layers - 1 else f"{name}.{layer}.sum"
        nodes.append(
            helper.make_node("Gemm", [flow, f"{name}.{layer}.weight", f"{name}.{layer}.bias"], [result], alpha=1.0)
        )
        if layer < layers - 1:
            flow = f"{name}.{layer}.out"
            nodes.append(helper.make_node(OPERATORS[activation], [result], [flow]))
    return nodes


def _discrete(actions: int, shield: Shield | None) -> Head:
    outputs = [
        helper.make_tensor_value_info("action", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", actions]),
    ]
    masking = mask(shield, "raw", "logits") if shield else Builder()
    if shield is None:
        masking.op("Identity", "raw", result="logits")
    else:
        outputs.append(_unshielded(masking, "raw", actions))
    masking.op("ArgMax", "logits", result="action", axis=1, keepdims=0)
    return masking.nodes, outputs, masking.constants


def _unshielded(builder: Builder, source: str, size: int) -> onnx.ValueInfoProto:
    builder.op("Identity", source, result=UNSHIELDED)
    return helper.make_tensor_value_info(UNSHIELDED, TensorProto.FLOAT, ["batch", size])


def _continuous(bounds: Bounds, shield: Shield | None, deviation: Deviation | None) -> Head:
    """tanh, scaled to the bounds; rounding may lead a last bit beyond them, hence the projection."""
    first = bool(bounds.choices)
    constants: Constants = {"centre": bounds.centre[first:], "reach": bounds.reach[first:]}
    constants |= {"low": bounds.low[first:], "high": bounds.high[first:]}
    steps = [
        ("Tanh", ["numbers"], "squashed"),
        ("Mul", ["squashed", "reach"], "scaled"),
        ("Add", ["scaled", "centre"], "placed"),
        ("Max", ["placed", "low"], "above"),
        ("Min", ["above", "high"], "bounded"),
    ]
    nodes = [helper.make_node(operator, inputs, [output]) for operator, inputs, output in steps]
    whole, before = "raw", list[onnx.NodeProto]()
    if deviation is not None:
        count = len(bounds.low) - first
        before, after, more = _spread(deviation, count)
        whole, nodes, constants = ("means" if before else "raw"), [*nodes, *after], constants | more
    outputs = [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", len(bounds.low)])]
    if first:
        constants["parts"] = np.asarray([bounds.choices, _outputs(bounds) - bounds.choices], dtype=np.int64)
        above = [
            helper.make_node("Split", [whole, "parts"], ["logits", "numbers"], axis=1),
            helper.make_node("ArgMax", ["logits"], ["best"], axis=1, keepdims=1),
            helper.make_node("Cast", ["best"], ["chosen"], to=TensorProto.FLOAT),
        ]
        nodes = [*above, *nodes, helper.make_node("Concat", ["chosen", "bounded"], ["wanted"], axis=1)]
        outputs.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", bounds.choices]))
    else:
        nodes = [helper.make_node("Identity", [whole], ["numbers"]), *nodes]
        nodes.append(helper.make_node("Identity", ["bounded"], ["wanted"]))
    if deviation is not None:
        outputs += [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", count]) for name in ("mean", "deviation")
        ]
    projection = project(shield, "wanted", "action") if shield else Builder()
    if shield is None:
        projection.op("Identity", "wanted", result="action")
    else:
        outputs.append(_unshielded(projection, "wanted", len(bounds.low)))
    return [*before, *nodes, *projection.nodes], outputs, constants | projection.constants


def _spread(deviation: Deviation, count: int) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto], Constants]:
    """Nodes from `raw` to `means` and the logarithms of deviations, and from `numbers` and those to the outputs."""
    limits = {"deviation.least": deviation.least, "deviation.most": deviation.most}
    constants: Constants = {name: np.asarray(limit, dtype=np.float32) for name, limit in limits.items()}
    before = []
    if deviation.array is None:
        constants["halves"] = np.asarray([count, count], dtype=np.int64)
        before.append(helper.make_node("Split", ["raw", "halves"], ["means", "deviation.raw"], axis=1))
    after = [
        helper.make_node("Clip", [deviation.array or "deviation.raw", *limits], ["deviation.log"]),
        helper.make_node("Exp", ["deviation.log"], ["deviation.each"]),
        helper.make_node("Identity", ["numbers"], ["mean"]),
        helper.make_node("Sub", ["mean", "mean"], ["deviation.none"]),  # 0 [batch, numbers]: as many rows as there are
        helper.make_node("Add", ["deviation.none", "deviation.each"], ["deviation"]),
    ]
    return before, after, constants
