"""A stock Open Inference Protocol v2 client, request for request: JSON as KServe's."""

import gzip
from collections.abc import Callable

import pytest

from testing.servers.policy_servers import OTHER, STABLE, LiveServer, table

OBSERVATION = [[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]]


def tensor(**fields) -> dict:
    return {"name": "observation", "datatype": "FP32", "shape": [2, 4], "data": OBSERVATION} | fields


def test_health_and_metadata_read_as_the_protocol_says(server: LiveServer) -> None:
    assert server.get("/v2/health/live").json() == {"live": True}
    assert server.get("/v2/health/ready").json() == {"ready": True}
    assert server.get("/v2").json()["name"] == server.get("/v2/").json()["name"] == "learnloop-policy-server"
    assert server.get("/v2/models/cart/ready").json() == {"name": "cart", "ready": True}
    assert server.get(f"/v2/models/cart/versions/{STABLE}/ready").status_code == 200
    assert server.get("/v2/models/cart").json() == {
        "name": "cart",
        "versions": [STABLE],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "observation", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [
            {"name": "action", "datatype": "INT64", "shape": [-1]},
            {"name": "logits", "datatype": "FP32", "shape": [-1, 2]},
        ],
    }


@pytest.mark.parametrize("data", [OBSERVATION, [number for row in OBSERVATION for number in row]])
def test_inference_takes_flat_and_nested_data(server: LiveServer, data: list) -> None:
    answer = server.post("/v2/models/cart/infer", {"id": "42", "inputs": [tensor(data=data)]}).json()
    assert answer == {
        "model_name": "cart",
        "model_version": STABLE,
        "id": "42",
        "outputs": [
            {"name": "action", "datatype": "INT64", "shape": [2], "data": [0, 1]},
            {"name": "logits", "datatype": "FP32", "shape": [2, 2], "data": [1.0, -1.0, -1.0, 1.0]},
        ],
    }


def test_only_the_outputs_asked_for_come_back(server: LiveServer) -> None:
    body = {"inputs": [tensor(datatype="FP64")], "outputs": [{"name": "action"}]}
    assert [o["name"] for o in server.post("/v2/models/cart/infer", body).json()["outputs"]] == ["action"]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        ({}, "inputs"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [tensor(name="x")]}, "name"),
        ({"inputs": [tensor(datatype="BYTES")]}, "datatype"),
        ({"inputs": [tensor(shape=[2, 5])]}, "shape"),
        ({"inputs": [tensor(shape=[2])]}, "shape"),
        ({"inputs": [tensor(shape=[0, 4])]}, "shape"),
        ({"inputs": [tensor(shape=[True, 4])]}, "shape"),
        ({"inputs": [tensor(shape=[100_000, 4])]}, "rows"),
        ({"inputs": [tensor(data=[1.0])]}, "data"),
        ({"inputs": [tensor(data=[[1.0], [1.0, 2.0]])]}, "data"),
        ({"inputs": [tensor(data=["a"] * 8)]}, "data"),
        ({"inputs": [tensor(data=None)]}, "data"),
        ({"inputs": [tensor(data=[1e300] * 8)]}, "finite"),
        ({"inputs": [tensor()], "outputs": [{"name": "q"}]}, "outputs[0]"),
        (
            {"inputs": [tensor()], "outputs": [{"name": "logits", "parameters": {"classification": 1}}]},
            "classification",
        ),
        ({"inputs": [tensor()], "outputs": [{"name": "logits", "parameters": 5}]}, "parameters"),
        ({"inputs": [tensor()], "outputs": 3}, "outputs"),
        ({"inputs": [tensor()], "id": 5}, "id"),
    ],
)
def test_a_malformed_request_is_told_what_is_wrong(server: LiveServer, body: object, names: str) -> None:
    answer = server.post("/v2/models/cart/infer", body)
    assert answer.status_code == 400
    assert names in answer.json()["error"]


def test_binary_tensors_are_refused_by_their_header(server: LiveServer) -> None:
    answer = server.post("/v2/models/cart/infer", b"{}\xff", **{"Inference-Header-Content-Length": "2"})
    assert (answer.status_code, "binary_data=False" in answer.json()["error"]) == (400, True)


def test_a_model_or_version_that_is_not_here_is_not_found(server: LiveServer) -> None:
    assert "cart" in server.get("/v2/models/other").json()["error"]
    assert server.get(f"/v2/models/cart/versions/{OTHER}").status_code == 404
    assert server.post("/v2/models/other/infer", {}).status_code == 404


def test_a_withdrawn_or_unready_model_does_not_infer(server: LiveServer, start: Callable[..., LiveServer]) -> None:
    server.route(table((OTHER, "stable", 100)))
    gone = server.post("/v2/models/cart/infer", {"inputs": [tensor()]}, **{"x-learnloop-arm": STABLE})
    assert gone.status_code == 410
    assert "withdrawn" in gone.json()["error"]
    young = start(policy=None)
    assert young.get("/v2/models/cart").status_code == 503
    assert young.get("/v2/health/ready").json() == {"ready": False}
    assert young.post("/v2/models/cart/infer", {"inputs": [tensor()]}).status_code == 503


@pytest.mark.parametrize("path", ["/v1/episodes", "/v2/models/cart/infer", "/v1/episodes/e1/act"])
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "deflate", "zstd"])
def test_a_compressed_body_is_refused_as_such(server: LiveServer, path: str, encoding: str) -> None:
    answer = server.post(path, gzip.compress(b"{}"), **{"Content-Encoding": encoding})
    assert answer.status_code == 415
    assert answer.json()["error" if path.startswith("/v2") else "message"] == (
        f"Content-Encoding: '{encoding}' is not supported: send the body without Content-Encoding"
    )


def test_a_body_that_says_it_is_not_compressed_is_read(server: LiveServer) -> None:
    assert server.post("/v1/episodes", b"{}", **{"Content-Encoding": "identity"}).status_code == 200
