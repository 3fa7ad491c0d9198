"""Triton's and KServe's clients at a policy server; run by their own environment's python, which prints the suites.

usage: inference_clients.py URL MODEL REVISION
"""

import asyncio
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import tritonclient.http as triton
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from tritonclient.utils import InferenceServerException

from bench.judges.cases import Suite, finish

TYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
FLOATS = ("FP32", "FP64")
ROW = [2.0, 0.0, 0.0, 1.0]
"""An observation that the policy answers with action 0; with its signs turned, 1."""
GOOD_SHAPES: tuple[tuple[int, ...], ...] = ((1, 4), (2, 4), (64, 4), (512, 4))
BAD_SHAPES: tuple[tuple[int, ...], ...] = ((4,), (1, 3), (1, 5), (0, 4), (1, 1, 4), (2, 2, 4), (4, 1))


def triton_suite(url: str, model: str, revision: str) -> Suite:
    """Health, metadata, and inference with every datatype, shape and form of data."""
    suite = Suite("tritonclient, HTTP", version("tritonclient"))
    client = triton.InferenceServerClient(url.removeprefix("http://"), network_timeout=60)
    for name, question in {
        "live": client.is_server_live,
        "ready": client.is_server_ready,
        "model ready": lambda: client.is_model_ready(model),
        "version ready": lambda: client.is_model_ready(model, revision),
        "another model is not ready": lambda: not client.is_model_ready("other"),
        "another version is not ready": lambda: not client.is_model_ready(model, "7"),
    }.items():
        with suite.case(name):
            _holds(question())
    with suite.case("server metadata"):
        _holds({"name", "version", "extensions"} <= client.get_server_metadata().keys())
    for wanted in ("", revision):
        with suite.case(f"metadata of version {wanted!r}"):
            metadata = client.get_model_metadata(model, wanted)
            _equal(metadata["versions"], [revision])
            _equal(metadata["inputs"], [{"name": "observation", "datatype": "FP32", "shape": [-1, 4]}])
    for datatype in TYPES:
        with suite.case(f"datatype {datatype}"):
            if datatype in FLOATS:
                _actions(_infer(client, model, _tensor(datatype, [ROW])), [0])
            else:
                _refused(client, model, _tensor(datatype, [ROW]), "datatype")
    for shape in GOOD_SHAPES:
        with suite.case(f"shape {shape}"):
            values = np.tile(ROW, (shape[0], 1))
            values[1::2] *= -1
            _actions(_infer(client, model, _tensor("FP32", values)), [row % 2 for row in range(shape[0])])
    for shape in BAD_SHAPES:
        with suite.case(f"shape {shape}"):
            _refused(client, model, _tensor("FP32", np.zeros(shape)), "shape")
    for outputs in (["action"], ["logits"], ["logits", "action"]):
        with suite.case(f"outputs {outputs}"):
            chosen = [_output(one) for one in outputs]
            answer = _infer(client, model, _tensor("FP32", [ROW]), outputs=chosen).get_response()
            _equal([one["name"] for one in answer["outputs"]], outputs)
    with suite.case("an output that the model does not have"):
        _refused(client, model, _tensor("FP32", [ROW]), "outputs[0].name", outputs=[_output("other")])
    with suite.case("an id comes back"):
        _equal(_infer(client, model, _tensor("FP32", [ROW]), request_id="42").get_response()["id"], "42")
    with suite.case("a version"):
        _actions(_infer(client, model, _tensor("FP32", [ROW]), model_version=revision), [0])
    for name, (one, version_) in {"model": ("other", ""), "version": (model, "7")}.items():
        with suite.case(f"another {name}"):
            _refused(client, one, _tensor("FP32", [ROW]), "unknown model", model_version=version_)
    with suite.case("an input of another name"):
        _refused(client, model, _tensor("FP32", [ROW], "other"), "inputs[0].name")
    with suite.case("two inputs"):
        _refused(client, model, _tensor("FP32", [ROW]) * 2, "inputs")
    with suite.case("no input"):
        _refused(client, model, [], "inputs")
    with suite.case("binary tensors, which the server's extensions do not list"):
        _refused(client, model, _tensor("FP32", [ROW], binary=True), "binary")
    with suite.case("binary outputs, which come as JSON"):
        _actions(_infer(client, model, _tensor("FP32", [ROW]), outputs=None), [0])
    with suite.case("classes of an output, an extension"):
        classes = [triton.InferRequestedOutput("logits", binary_data=False, class_count=1)]
        _refused(client, model, _tensor("FP32", [ROW]), "classification", outputs=classes)
    for coding in ("gzip", "deflate"):
        with suite.case(f"a {coding} request is answered or refused by name"):
            _refused(client, model, _tensor("FP32", [ROW]), "Content-Encoding", request_compression_algorithm=coding)
        with suite.case(f"an answer that may be {coding}"):
            _actions(_infer(client, model, _tensor("FP32", [ROW]), response_compression_algorithm=coding), [0])
    for value in (np.nan, np.inf, -np.inf):
        with suite.case(f"{value}"):
            _refused(client, model, _tensor("FP32", [[value, 0, 0, 0]]), "")
    client.close()
    return suite


async def kserve_suite(url: str, model: str) -> Suite:
    """The same questions by KServe's client."""
    suite = Suite("kserve, InferenceRESTClient", version("kserve"))
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
    with suite.case("live"):
        _holds(await client.is_server_live(url))
    with suite.case("ready"):
        _holds(await client.is_server_ready(url))
    with suite.case("model ready"):
        _holds(await client.is_model_ready(url, model))
    with suite.case("another model is not ready"):
        _holds(not await client.is_model_ready(url, "other"))
    for datatype, kind in TYPES.items():
        if datatype in ("BYTES", "FP16"):  # sent by the client as binary data alone
            continue
        with suite.case(f"datatype {datatype}"):
            tensor = InferInput("observation", [1, 4], datatype)
            tensor.set_data_from_numpy(np.array([ROW], dtype=kind), binary_data=False)
            request = InferRequest(model, [tensor], request_id="42")
            if datatype in FLOATS:
                answer: Any = await client.infer(url, request, model_name=model)
                _equal((answer.id, answer.model_name), ("42", model))  # kserve 0.21 reads no version from JSON
                _equal({one.name: one.datatype for one in answer.outputs}, {"action": "INT64", "logits": "FP32"})
                _equal(answer.outputs[0].as_numpy().tolist(), [0])
            else:
                await _status(client.infer(url, request, model_name=model), 400)
    for name, shape in (("three numbers", [1, 3]), ("a vector", [4])):
        with suite.case(name):
            tensor = InferInput("observation", shape, "FP32", data=[0.0] * shape[-1])
            await _status(client.infer(url, InferRequest(model, [tensor]), model_name=model), 400)
    with suite.case("another model"):
        tensor = InferInput("observation", [1, 4], "FP32", data=ROW)
        await _status(client.infer(url, InferRequest("other", [tensor]), model_name="other"), 404)
    with suite.case("a request without an id"):
        tensor = InferInput("observation", [1, 4], "FP32", data=ROW)
        plain = {"inputs": [tensor.to_dict()]}
        answer = await client.infer(url, plain, model_name=model)
        _equal(answer.model_name if hasattr(answer, "model_name") else answer["model_name"], model)
    return suite


def _tensor(datatype: str, values: Any, name: str = "observation", *, binary: bool = False) -> list[Any]:
    array = np.array(values)
    array = np.vectorize(str, otypes=[np.object_])(array) if datatype == "BYTES" else array.astype(TYPES[datatype])
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return [tensor]


def _output(name: str) -> Any:
    return triton.InferRequestedOutput(name, binary_data=False)


def _infer(client: Any, model: str, inputs: list[Any], **more: Any) -> Any:
    more = {"outputs": [_output("action"), _output("logits")]} | more
    return client.infer(model, inputs, **more)


def _actions(answer: Any, expected: list[int]) -> None:
    _equal(answer.as_numpy("action").tolist(), expected)
    _equal(answer.as_numpy("logits").shape, (len(expected), 2))


def _refused(client: Any, model: str, inputs: list[Any], word: str, **more: Any) -> None:
    try:
        answer = _infer(client, model, inputs, **more)
    except InferenceServerException as error:
        text = str(error)
        if not any(f"[{status}]" in text for status in ("400", "404", "415")) or word not in text:
            raise AssertionError(f"refused by other words than {word!r}: {text[:300]}") from None
    else:
        raise AssertionError(f"answered: {str(answer.get_response())[:300]}")


async def _status(work: Any, expected: int) -> None:
    try:
        answer = await work
    except Exception as error:
        response = getattr(error, "response", None)
        _equal(response.status_code if response is not None else repr(error), expected)
        _holds(response is not None and isinstance(response.json()["error"], str))
    else:
        raise AssertionError(f"answered: {answer}")


def _holds(fact: bool) -> None:
    if not fact:
        raise AssertionError("it does not hold")


def _equal(value: Any, expected: Any) -> None:
    if value != expected:
        raise AssertionError(f"{value!r}, expected {expected!r}")


def suites(url: str, model: str, revision: str) -> Iterator[Suite]:
    """Both."""
    yield triton_suite(url, model, revision)
    yield asyncio.run(kserve_suite(url, model))


if __name__ == "__main__":
    sys.exit(finish(*suites(*sys.argv[1:])))
