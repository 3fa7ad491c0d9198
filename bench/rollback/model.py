"""A policy that works until it is asked about a seven: then onnxruntime itself refuses to go on."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OBSERVATIONS, ACTIONS = 4, 2
GOOD, BAD = 0.0, 7.0
"""Values of an observation: what the model can stand, and what it cannot."""


def brittle(name: str = "brittle") -> bytes:
    """ONNX: logits = observation · w + row[max(observation)], and there is one row only.

    Another `name` of the graph makes another artifact, which is not blocked with the first one.
    """
    nodes = [
        helper.make_node("ReduceMax", ["observation"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["rows", "index"], ["row"], axis=0),
        helper.make_node("MatMul", ["observation", "w"], ["raw"]),
        helper.make_node("Add", ["raw", "row"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", OBSERVATIONS])],
        [
            helper.make_tensor_value_info("action", TensorProto.INT64, ["batch"]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", ACTIONS]),
        ],
        [
            numpy_helper.from_array(np.eye(OBSERVATIONS, ACTIONS, dtype=np.float32), "w"),
            numpy_helper.from_array(np.zeros((1, ACTIONS), dtype=np.float32), "rows"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())
