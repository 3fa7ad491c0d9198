"""Open Inference Protocol v2, REST: metadata and inference for any KServe or Triton client.

Source: kserve/open-inference-protocol, specification/protocol/inference_rest.md, with the binary tensor data
extension (Triton's protocol/extension_binary_data.md) that Triton's own client uses by default.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from learnloop_common.acting.onnx_policy import INPUT
from learnloop_common.acting.policy import Policy, PolicyError
from learnloop_serving.refusal import Refusal, read_body

if TYPE_CHECKING:
    from learnloop_serving.app import Arm

HEADER_JSON_LENGTH = "inference-header-content-length"
MAX_BATCH = 8192
MAX_ELEMENTS = 4_194_304
_INPUT_TYPES: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "FP64": np.dtype("<f8")}
_DISCRETE: dict[str, tuple[str, np.dtype[Any]]] = {
    "action": ("INT64", np.dtype("<i8")),
    "logits": ("FP32", np.dtype("<f4")),
}
_CONTINUOUS: dict[str, tuple[str, np.dtype[Any]]] = {"action": ("FP32", np.dtype("<f4"))}


class InvalidRequest(ValueError):
    """The request breaks the protocol or the model's signature; the message names field, value and fix."""


Decided = Callable[[np.ndarray[Any, np.dtype[np.float32]], np.ndarray[Any, Any]], None]
"""Told the observations [batch, n] and the greedy actions [batch] or [batch, numbers]."""


@dataclass(frozen=True)
class Encoded:
    """An answer; `json_length` is None when it is JSON alone."""

    body: bytes
    json_length: int | None = None


def _types(policy: Policy) -> dict[str, tuple[str, np.dtype[Any]]]:
    return _CONTINUOUS if policy.continuous else _DISCRETE


def server_metadata(version: str) -> dict[str, Any]:
    """GET /v2"""
    return {"name": "learnloop-policy-server", "version": version, "extensions": ["binary_tensor_data"]}


def model_metadata(name: str, revision: str, policy: Policy) -> dict[str, Any]:
    """GET /v2/models/{name}; -1 is an open dimension."""
    return {
        "name": name,
        "versions": [revision],
        "platform": policy.platform,
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, policy.observations or -1]}],
        "outputs": [
            {"name": output, "datatype": datatype, "shape": [-1] if datatype == "INT64" else [-1, policy.actions]}
            for output, (datatype, _) in _types(policy).items()
        ],
    }


def infer(
    name: str, revision: str, policy: Policy, body: bytes, json_length: str | None, decided: Decided | None = None
) -> Encoded:
    """POST /v2/models/{name}/infer; raises InvalidRequest and PolicyError. `decided` learns what the policy did."""
    header, binary = _split(body, json_length)
    observation = _observation(header, binary, policy)
    types = _types(policy)
    wanted = _wanted(header, list(types))
    results = policy.run(observation)
    if decided is not None:
        decided(observation, results["action"])
    outputs: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for output, as_binary in wanted:
        datatype, layout = types[output]
        tensor = results[output]
        entry: dict[str, Any] = {"name": output, "datatype": datatype, "shape": list(tensor.shape)}
        if as_binary:
            raw = tensor.astype(layout, copy=False).tobytes()
            entry["parameters"] = {"binary_data_size": len(raw)}
            tail.append(raw)
        else:
            entry["data"] = tensor.ravel().tolist()
        outputs.append(entry)
    answer: dict[str, Any] = {"model_name": name, "model_version": revision, "outputs": outputs}
    if "id" in header:
        answer["id"] = header["id"]
    text = orjson.dumps(answer)
    return Encoded(text + b"".join(tail), len(text)) if tail else Encoded(text)


def _split(body: bytes, json_length: str | None) -> tuple[dict[str, Any], bytes]:
    if json_length is None:
        text, binary = body, b""
    else:
        if not json_length.isdigit() or int(json_length) > len(body):
            raise InvalidRequest(
                f"Inference-Header-Content-Length: {json_length[:40]!r} does not fit {len(body)} bytes"
            )
        text, binary = body[: int(json_length)], body[int(json_length) :]
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"body: not JSON: {error}") from error
    if not isinstance(header, dict):
        raise InvalidRequest("body: must be a JSON object")
    if not isinstance(header.get("id", ""), str):
        raise InvalidRequest("id: must be a string")
    return header, binary


def _observation(header: dict[str, Any], binary: bytes, policy: Policy) -> np.ndarray[Any, np.dtype[np.float32]]:
    inputs = header.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise InvalidRequest(f"inputs: must be a list of exactly one tensor, '{INPUT}'")
    tensor = inputs[0]
    if tensor.get("name") != INPUT:
        raise InvalidRequest(f"inputs[0].name: {str(tensor.get('name'))[:80]!r}, expected '{INPUT}'")
    layout = _INPUT_TYPES.get(str(tensor.get("datatype")))
    if layout is None:
        raise InvalidRequest(f"inputs[0].datatype: {str(tensor.get('datatype'))[:20]!r}, expected FP32 (or FP64)")
    shape = _shape(tensor.get("shape"), policy)
    values = _values(tensor, binary, layout, shape)
    if values.size != shape[0] * shape[1]:
        raise InvalidRequest(f"inputs[0].data: {values.size} numbers do not fill shape {list(shape)}")
    with np.errstate(over="ignore"):
        observation = values.reshape(shape).astype(np.float32)
    if not np.isfinite(observation).all():
        raise InvalidRequest("inputs[0].data: every number must be finite and within float32")
    return observation


def _shape(shape: Any, policy: Policy) -> tuple[int, int]:
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape)
    ):
        raise InvalidRequest(f"inputs[0].shape: {str(shape)[:80]}, expected [batch, {policy.observations or 'n'}]")
    batch, width = shape
    if policy.observations is not None and width != policy.observations:
        raise InvalidRequest(f"inputs[0].shape: {shape}, expected [batch, {policy.observations}]")
    if batch > MAX_BATCH or batch * width > MAX_ELEMENTS:
        raise InvalidRequest(f"inputs[0].shape: {shape}: at most {MAX_BATCH} rows and {MAX_ELEMENTS} numbers at once")
    return batch, width


def _values(
    tensor: dict[str, Any], binary: bytes, layout: np.dtype[Any], shape: tuple[int, int]
) -> np.ndarray[Any, np.dtype[Any]]:
    parameters = tensor.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None:
        if size != len(binary) or size != shape[0] * shape[1] * layout.itemsize:
            raise InvalidRequest(
                f"inputs[0].parameters.binary_data_size: {str(size)[:20]} does not match the {len(binary)} bytes sent "
                f"or shape {list(shape)} of {tensor['datatype']}"
            )
        return np.frombuffer(binary, dtype=layout)
    data = tensor.get("data")
    if not isinstance(data, list):
        raise InvalidRequest("inputs[0].data: must be a list of numbers, flat or nested")
    try:
        values = np.array(data)
    except ValueError as error:
        raise InvalidRequest("inputs[0].data: nested lists have unequal lengths") from error
    if values.dtype.kind not in "iuf":
        raise InvalidRequest("inputs[0].data: must hold numbers only")
    return values.ravel()


def _wanted(header: dict[str, Any], names: list[str]) -> list[tuple[str, bool]]:
    """(output name, as binary?) in the order asked for; all outputs when none is named."""
    default = _flag(header.get("parameters"), "binary_data_output")
    requested = header.get("outputs")
    if requested is None or requested == []:
        return [(name, default) for name in names]
    if not isinstance(requested, list):
        raise InvalidRequest("outputs: must be a list")
    wanted: dict[str, bool] = {}
    for index, output in enumerate(requested):
        name = output.get("name") if isinstance(output, dict) else None
        if name not in names:
            raise InvalidRequest(f"outputs[{index}].name: {str(name)[:80]!r}, the model has {names}")
        wanted[name] = _flag(output.get("parameters"), "binary_data", default)
    return list(wanted.items())


def _flag(parameters: Any, key: str, default: bool = False) -> bool:
    return bool(parameters.get(key, default)) if isinstance(parameters, dict) else default


log = logging.getLogger(__name__)
MAX_BODY = 33_554_432
OFFLOAD_BODY = 65_536


def _error(message: str, status: int) -> Response:
    return JSONResponse({"error": message}, status)


def oip_routes(arm: "Arm") -> list[Route]:
    """Routes under /v2 for `arm`."""
    settings = arm.settings
    try:
        release = version("learnloop")
    except PackageNotFoundError:
        release = "0"

    def unknown(request: Request) -> Response | None:
        model, revision = request.path_params["model"], request.path_params.get("version")
        if model == settings.model_deployment and revision in (None, settings.revision):
            return None
        wanted = model if revision is None else f"{model} version {revision}"
        text = f"unknown model {wanted[:200]}: this server has {settings.model_deployment} {settings.revision}"
        return _error(text, 404)

    async def server(_: Request) -> Response:
        return JSONResponse(server_metadata(release))

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def server_is_ready(_: Request) -> Response:
        return JSONResponse({"ready": arm.ready}, 200 if arm.ready else 503)

    async def metadata(request: Request) -> Response:
        policy = arm.episodes.policy
        if refused := unknown(request):
            return refused
        if policy is None:
            return _error("the policy is still being loaded", 503)
        return JSONResponse(model_metadata(settings.model_deployment, settings.revision, policy))

    async def ready(request: Request) -> Response:
        if refused := unknown(request):
            return refused
        return JSONResponse({"name": settings.model_deployment, "ready": arm.ready}, 200 if arm.ready else 503)

    async def infer(request: Request) -> Response:
        return unknown(request) or await _infer(arm, request)

    routes = [Route("/v2", server), Route("/v2/health/live", live), Route("/v2/health/ready", server_is_ready)]
    for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [Route(base, metadata), Route(f"{base}/ready", ready)]
        routes.append(Route(f"{base}/infer", infer, methods=["POST"]))
    return routes


async def _infer(arm: "Arm", request: Request) -> Response:
    start, says = time.perf_counter(), True
    other = None
    try:
        other = arm.episodes.stand_in.arm(request)
        if other is not None:
            return await arm.episodes.stand_in.answer(other, request, await read_body(request, MAX_BODY))
        policy = arm.episodes.serving()
        body = await read_body(request, MAX_BODY)
        arguments = (arm.settings.model_deployment, arm.settings.revision, policy, body)
        length = request.headers.get(HEADER_JSON_LENGTH)
        arm.episodes.count_decision(None)
        if arm.offload or len(body) > OFFLOAD_BODY:
            encoded = await arm.beside(infer, *arguments, length, arm.episodes.inferred)
        else:
            encoded = infer(*arguments, length, arm.episodes.inferred)
        return _encoded(encoded)
    except InvalidRequest as error:
        says = False
        arm.metrics.apart["infer", "invalid"].inc()
        return _error(str(error), 400)
    except Refusal as refusal:
        says = refusal.apart is None
        if refusal.apart is not None:
            arm.metrics.apart["infer", refusal.apart].inc()
        answer = _error(refusal.message, refusal.status)
        if refusal.retry_after:
            answer.headers["retry-after"] = str(refusal.retry_after)
        return answer
    except PolicyError as error:
        arm.metrics.failed("infer")
        log.error("policy failed: %s", error)
        return _error(str(error), 500)
    finally:
        if other is None and says:
            arm.metrics.observe["infer"](time.perf_counter() - start)


def _encoded(encoded: Encoded) -> Response:
    if encoded.json_length is None:
        return Response(encoded.body, media_type="application/json")
    headers = {"Inference-Header-Content-Length": str(encoded.json_length)}
    return Response(encoded.body, media_type="application/octet-stream", headers=headers)
