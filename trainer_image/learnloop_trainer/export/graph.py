"""The ONNX graph of a policy, written node by node.

Signature of every policy: `observation` float32 [batch, observations] in; `action` int64 [batch] (greedy) and `logits`
float32 [batch, actions] out. For DQN the logits are Q-values. Opset 17 and IR version 8 load on onnxruntime ≥ 1.12.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
OPERATORS = {"tanh": "Tanh", "relu": "Relu"}


def build(arrays: Mapping[str, NDArray[np.float32]], name: str, activation: str, metadata: Mapping[str, str]) -> bytes:
    """The perceptron `name` among the arrays, with argmax, as a checked and serialised model.

    Deterministic: the same weights and metadata give the same bytes.
    """
    layers = sum(key.startswith(f"{name}.") and key.endswith(".weight") for key in arrays)
    nodes, flow = [], "observation"
    for layer in range(layers):
        result = "logits" if layer == layers - 1 else f"{name}.{layer}.sum"
        nodes.append(
            helper.make_node("Gemm", [flow, f"{name}.{layer}.weight", f"{name}.{layer}.bias"], [result], alpha=1.0)
        )
        flow = result
        if layer < layers - 1:
            flow = f"{name}.{layer}.out"
            nodes.append(helper.make_node(OPERATORS[activation], [result], [flow]))
    nodes.append(helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0))
    observations = arrays[f"{name}.0.weight"].shape[0]
    actions = arrays[f"{name}.{layers - 1}.weight"].shape[1]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", observations])],
        [
            helper.make_tensor_value_info("action", TensorProto.INT64, ["batch"]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", actions]),
        ],
        [numpy_helper.from_array(array, key) for key, array in arrays.items() if key.startswith(f"{name}.")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="learnloop")
    model.ir_version = IR_VERSION
    sizes = {"learnloop.observations": str(observations), "learnloop.actions": str(actions)}
    helper.set_model_props(model, dict(metadata) | sizes)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))
