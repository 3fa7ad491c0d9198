"""A shield's fallback policy: it acts in training by the policy server's own code, and is exported with the policy."""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import compose, inliner, version_converter

from learnloop_common.acting import onnx_policy, policy
from learnloop_environments import errors, spaces
from learnloop_trainer.errors import NumericError

FIELD = "spec.safety.fallbackPolicy"
FIX = "name a policy for the same environment, without memory, as learnloop or an engine exports it, or set fallback"
OPSET, PREFIX = 17, "fallback."


DRAWS = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}


def drawing(model: onnx.ModelProto) -> list[str]:
    """Operators that give another result each time: such a policy is not what was proven."""
    nodes, names = [*model.graph.node, *(node for function in model.functions for node in function.node)], set[str]()
    while nodes:
        node = nodes.pop()
        trains = node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])
        if node.op_type in DRAWS or trains:
            names.add(node.op_type)
        for attribute in node.attribute:
            nodes += [inner for graph in (attribute.g, *attribute.graphs) for inner in graph.node]
    return sorted(names)


class FallbackPolicy:
    """Acts greedily, for as many observations and actions as the policy that it replaces."""

    def __init__(
        self,
        body: bytes,
        uri: str,
        observations: int,
        actions: int,
        *,
        continuous: bool,
        bounds: spaces.Bounds | None = None,
    ) -> None:
        """Raises ConfigError when the policy in the file has other spaces, remembers, or cannot be exported again.

        `bounds`: its numbers are moved into them.
        """
        self._uri, self._name, self._bounds = uri, "action" if continuous else "logits", bounds
        try:
            self._policy = onnx_policy.OnnxPolicy(body)
            self.graph = _prefixed(body)
        except policy.ModelError as error:
            raise errors.ConfigError(FIELD, uri, str(error), FIX) from None
        have = self._policy.observations, self._policy.actions, self._policy.continuous
        if have != (observations, actions, continuous) or self._policy.memory:
            kinds = {True: "numbers", False: "choices"}
            problem = f"takes {have[0]} observations for {have[1]} {kinds[have[2]]}"
            problem += f"{' and remembers' if self._policy.memory else ''}, the environment has {observations} for "
            raise errors.ConfigError(FIELD, uri, f"{problem}{actions} {kinds[continuous]}", FIX)
        if bounds is None:
            return
        choices = self._policy.run(np.zeros((1, observations), np.float32)).get("logits", np.zeros((1, 0))).shape[1]
        if choices != bounds.choices:
            problem = f"has a choice of {choices} before its numbers, the environment {bounds.choices}"
            raise errors.ConfigError(FIELD, uri, problem, FIX)
        for operator, side in (("Max", "low"), ("Min", "high")):
            before, limit = self.result, f"{PREFIX}within.{side}"
            self._name = f"{self._name}.{side}"
            self.graph.initializer.append(onnx.numpy_helper.from_array(getattr(bounds, side)[None], limit))
            self.graph.node.append(onnx.helper.make_node(operator, [before, limit], [self.result]))

    @property
    def result(self) -> str:
        """Of its graph: the edge with what `outputs` gives."""
        return f"{PREFIX}{self._name}"

    def outputs(self, observation: spaces.Observations) -> NDArray[np.float32]:
        """Its numbers, or logits, [n, actions]; raises NumericError."""
        try:
            result = np.asarray(self._policy.run(observation)[self._name.partition(".")[0]])
        except policy.PolicyError as error:
            raise NumericError(f"{FIELD}: {self._uri}: {error}") from None
        return result if self._bounds is None else np.clip(result, self._bounds.low, self._bounds.high)


def _prefixed(body: bytes) -> onnx.GraphProto:
    """Its nodes and weights under names of their own, from `observation`. Raises policy.ModelError."""
    try:
        model = inliner.inline_local_functions(onnx.load_from_string(body))
        model = version_converter.convert_version(model, OPSET)
        foreign = sorted({node.op_type for node in model.graph.node if node.domain not in ("", "ai.onnx")})
        draws = drawing(model)
        graph: onnx.GraphProto = compose.add_prefix_graph(model.graph, PREFIX)
    except Exception as error:  # protobuf's and onnx's errors share no base class below Exception
        raise policy.ModelError(f"cannot be written with opset {OPSET} ({str(error)[:120]})") from None
    if foreign:
        raise policy.ModelError(f"has nodes that are not ONNX's own: {', '.join(foreign)}")
    if draws:
        raise policy.ModelError(f"draws random numbers: {', '.join(draws)}")
    graph.node.insert(0, onnx.helper.make_node("Identity", [onnx_policy.INPUT], [PREFIX + onnx_policy.INPUT]))
    return graph
