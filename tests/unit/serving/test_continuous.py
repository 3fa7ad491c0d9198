"""A policy whose actions are vectors, as the trainer exports it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_common.acting.policy import ModelError, PolicyError
from testing.servers.policy_servers import STABLE, LiveServer, table


def write_continuous(path: Path, *, rank: int = 2, metadata: dict[str, str] | None = None) -> Path:
    """action = 2 tanh(observation · weights), for observations of 3 numbers and actions of 2."""
    constants = {"w": np.float32([[1, 0], [0, 1], [0, 0]]), "two": np.float32([2])}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["observation", "w"], ["raw"]),
            helper.make_node("Tanh", ["raw"], ["squashed"]),
            helper.make_node("Mul", ["squashed", "two"], ["action"]),
        ],
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", 2][:rank])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path


@pytest.fixture
def server(start: Callable[..., LiveServer], tmp_path: Path) -> LiveServer:
    server = start(policy=OnnxPolicy(write_continuous(tmp_path / "policy.onnx")))
    server.route(table((STABLE, "stable", 100, server.url)))
    return server


@pytest.mark.parametrize("explore", [True, False])
def test_an_episode_gets_the_vector_and_is_told_that_it_was_not_sampled(server: LiveServer, explore: bool) -> None:
    episode = server.post("/v1/episodes", {}).json()["episode_id"]
    body = {"observation": [0.5, -20, 7], "explore": explore}
    answer = server.post(f"/v1/episodes/{episode}/act", body).json()
    assert answer["action"] == pytest.approx([2 * np.tanh(0.5), -2], rel=1e-6)
    assert (answer["log_prob"], answer["exploration"], answer["revision"]) == (0, False, STABLE)


def test_the_open_inference_protocol_describes_and_returns_vectors(server: LiveServer) -> None:
    outputs = server.get("/v2/models/cart").json()["outputs"]
    assert outputs == [{"name": "action", "datatype": "FP32", "shape": [-1, 2]}]
    tensor = {"name": "observation", "datatype": "FP32", "shape": [2, 3], "data": [0, 0, 0, 9, -9, 0]}
    (action,) = server.post("/v2/models/cart/infer", {"inputs": [tensor]}).json()["outputs"]
    assert (action["datatype"], action["shape"]) == ("FP32", [2, 2])
    assert action["data"] == pytest.approx([0, 0, 2, -2], abs=1e-6)
    refusal = server.post("/v2/models/cart/infer", {"inputs": [tensor], "outputs": [{"name": "logits"}]})
    assert refusal.json()["error"] == "outputs[0].name: 'logits', the model has ['action']"


def test_vectors_of_unknown_length_or_contradicting_metadata_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"action: shape is \[.*\], expected \[batch, n\]"):
        OnnxPolicy(write_continuous(tmp_path / "flat.onnx", rank=1))
    with pytest.raises(ModelError, match=r"metadata learnloop\.actions: '3' contradicts the shape"):
        OnnxPolicy(write_continuous(tmp_path / "other.onnx", metadata={"learnloop.actions": "3"}))


def test_an_action_that_is_not_finite_is_never_handed_out(tmp_path: Path) -> None:
    policy = OnnxPolicy(write_continuous(tmp_path / "policy.onnx"))
    with pytest.raises(PolicyError, match="the policy's action is not finite"):
        policy.run(np.full((1, 3), np.nan, dtype=np.float32))
