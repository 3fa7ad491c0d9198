"""Open Inference Protocol v2, REST with JSON: metadata and inference for any KServe client.

Source: kserve/open-inference-protocol, specification/protocol/inference_rest.md.
"""

import logging
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from learnloop_common.acting.onnx_policy import INPUT
from learnloop_common.acting.policy import Observations, Policy, PolicyError
from learnloop_serving.arm import Arm
from learnloop_serving.refusals import Refusal, read_body, refused

MAX_BATCH = 8192
MAX_ELEMENTS = 4_194_304


class InvalidRequest(ValueError):
    """The request breaks the protocol or the model's signature; the message names field, value and fix."""


Decided = Callable[[Observations, np.ndarray[Any, Any]], None]
"""Gets the observations [batch, n] and the greedy actions [batch] or [batch, numbers]."""


def _outputs(policy: Policy) -> dict[str, str]:
    return {"action": "FP32"} if policy.continuous else {"action": "INT64", "logits": "FP32"}


def model_metadata(name: str, revision: str, policy: Policy) -> dict[str, Any]:
    """GET /v2/models/{name}; -1 is an open dimension."""
    return {
        "name": name,
        "versions": [revision],
        "platform": policy.platform,
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, policy.observations or -1]}],
        "outputs": [
            {"name": output, "datatype": datatype, "shape": [-1] if datatype == "INT64" else [-1, policy.actions]}
            for output, datatype in _outputs(policy).items()
        ],
    }


def infer(name: str, revision: str, policy: Policy, body: bytes, decided: Decided | None = None) -> bytes:
    """POST /v2/models/{name}/infer; raises InvalidRequest and PolicyError. `decided` gets what the policy did."""
    if policy.memory:
        raise InvalidRequest(f"inputs: revision {revision} remembers its episode: use /v1/episodes, which has them")
    request = _request(body)
    observation = _observation(request, policy)
    types = _outputs(policy)
    wanted = _wanted(request.get("outputs"), list(types))
    results = policy.run(observation)
    if decided is not None:
        decided(observation, results["action"])
    outputs = [
        {
            "name": output,
            "datatype": types[output],
            "shape": list(results[output].shape),
            "data": results[output].ravel().tolist(),
        }
        for output in wanted
    ]
    identity = {"id": request["id"]} if "id" in request else {}
    return orjson.dumps({"model_name": name, "model_version": revision, "outputs": outputs} | identity)


def _request(body: bytes) -> dict[str, Any]:
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"body: not JSON: {error}") from error
    if not isinstance(request, dict):
        raise InvalidRequest("body: must be a JSON object")
    if not isinstance(request.get("id", ""), str):
        raise InvalidRequest("id: must be a string")
    return request


def _observation(request: dict[str, Any], policy: Policy) -> Observations:
    inputs = request.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise InvalidRequest(f"inputs: must be a list of exactly one tensor, '{INPUT}'")
    tensor = inputs[0]
    if tensor.get("name") != INPUT:
        raise InvalidRequest(f"inputs[0].name: {str(tensor.get('name'))[:80]!r}, expected '{INPUT}'")
    if tensor.get("datatype") not in ("FP32", "FP64"):
        raise InvalidRequest(f"inputs[0].datatype: {str(tensor.get('datatype'))[:20]!r}, expected FP32 (or FP64)")
    shape, values = _shape(tensor.get("shape"), policy), _values(tensor.get("data"))
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
        raise InvalidRequest(f"inputs[0].shape: {shape}: at most {MAX_BATCH} rows and {MAX_ELEMENTS} numbers")
    return batch, width


def _values(data: Any) -> np.ndarray[Any, np.dtype[Any]]:
    if not isinstance(data, list):
        raise InvalidRequest("inputs[0].data: must be a list of numbers, flat or nested")
    try:
        values = np.array(data)
    except ValueError as error:
        raise InvalidRequest("inputs[0].data: nested lists have unequal lengths") from error
    if values.dtype.kind not in "iuf":
        raise InvalidRequest("inputs[0].data: must hold numbers only")
    return values.ravel()


def _wanted(requested: Any, names: list[str]) -> list[str]:
    """The outputs in the order asked for; all if none is named."""
    if requested is None or requested == []:
        return names
    if not isinstance(requested, list):
        raise InvalidRequest("outputs: must be a list")
    for index, output in enumerate(requested):
        name = output.get("name") if isinstance(output, dict) else None
        if name not in names:
            raise InvalidRequest(f"outputs[{index}].name: {str(name)[:80]!r}, the model has {names}")
        parameters = output.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise InvalidRequest(f"outputs[{index}].parameters: must be a JSON object")
        if "classification" in parameters:
            raise InvalidRequest(f"outputs[{index}].parameters: classification is not supported: leave it out")
    return list(dict.fromkeys(output["name"] for output in requested))


log = logging.getLogger(__name__)
MAX_BODY = 33_554_432
OFFLOAD_BODY = 65_536
BINARY = "inference-header-content-length"


def _error(message: str, status: int) -> Response:
    return JSONResponse({"error": message}, status)


def oip_routes(arm: Arm) -> list[Route]:
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
        return JSONResponse({"name": "learnloop-policy-server", "version": release, "extensions": []})

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def server_is_ready(_: Request) -> Response:
        return JSONResponse({"ready": arm.ready}, 200 if arm.ready else 503)

    async def metadata(request: Request) -> Response:
        policy = arm.episodes.policy
        if other := unknown(request):
            return other
        if policy is None:
            return _error("the policy is still being loaded", 503)
        return JSONResponse(model_metadata(settings.model_deployment, settings.revision, policy))

    async def ready(request: Request) -> Response:
        if other := unknown(request):
            return other
        return JSONResponse({"name": settings.model_deployment, "ready": arm.ready}, 200 if arm.ready else 503)

    async def infer(request: Request) -> Response:
        return unknown(request) or await _infer(arm, request)

    routes = [Route("/v2", server), Route("/v2/", server)]
    routes += [Route("/v2/health/live", live), Route("/v2/health/ready", server_is_ready)]
    for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [Route(base, metadata), Route(f"{base}/ready", ready)]
        routes.append(Route(f"{base}/infer", infer, methods=["POST"]))
    return routes


async def _infer(arm: Arm, request: Request) -> Response:
    start, says = time.perf_counter(), True
    other = None
    try:
        other = arm.episodes.stand_in.arm(request)
        if other is not None:
            return await arm.episodes.stand_in.answer(other, request, await read_body(request, MAX_BODY))
        policy = arm.episodes.serving()
        if BINARY in request.headers:
            raise InvalidRequest(f"{BINARY}: binary tensors are not supported: send JSON alone (binary_data=False)")
        body = await read_body(request, MAX_BODY)
        arguments = (arm.settings.model_deployment, arm.settings.revision, policy, body)
        arm.episodes.count_decision(None)
        if arm.offload or len(body) > OFFLOAD_BODY:
            answer = await arm.on_policy_thread(infer, *arguments, arm.episodes.inferred)
        else:
            answer = infer(*arguments, arm.episodes.inferred)
        return Response(answer, media_type="application/json")
    except InvalidRequest as error:
        says = False
        arm.metrics.apart["infer", "invalid"].inc()
        return _error(str(error), 400)
    except Refusal as refusal:
        says = refusal.apart is None
        if refusal.apart is not None:
            arm.metrics.apart["infer", refusal.apart].inc()
        return refused(refusal, inference=True)
    except PolicyError as error:
        arm.metrics.failed("infer")
        log.error("policy failed: %s", error)
        return _error(str(error), 500)
    finally:
        if other is None and says:
            arm.metrics.observe["infer"](time.perf_counter() - start)
