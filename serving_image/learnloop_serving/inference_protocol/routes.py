"""Open Inference Protocol v2 on HTTP: the routes around oip.py."""

import logging
import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Request, Response

from learnloop_api import names
from learnloop_common.acting.policy import PolicyError
from learnloop_serving.inference_protocol import tensors
from learnloop_serving.refusal import Refusal

if TYPE_CHECKING:
    from learnloop_serving.app import Arm

log = logging.getLogger(__name__)
MAX_BODY = 33_554_432
OFFLOAD_BODY = 65_536


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def _error(message: str, status: int) -> Response:
    return _json({"error": message}, status)


def oip_routes(arm: "Arm") -> APIRouter:
    """Routes under /v2 for `arm`."""
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol v2"])
    _add_server_routes(router, arm)
    _add_model_routes(router, arm)
    return router


def _add_server_routes(router: APIRouter, arm: "Arm") -> None:
    try:
        release = version("learnloop")
    except PackageNotFoundError:
        release = "0"

    @router.get("")
    async def server_metadata() -> Response:
        return _json(tensors.server_metadata(release))

    @router.get("/health/live")
    async def server_live() -> Response:
        return _json({"live": True})

    @router.get("/health/ready")
    async def server_ready() -> Response:
        return _json({"ready": arm.ready}, 200 if arm.ready else 503)


def _add_model_routes(router: APIRouter, arm: "Arm") -> None:
    settings = arm.settings

    def unknown(model: str, revision: str | None) -> Response | None:
        if model == settings.model_deployment and revision in (None, settings.revision):
            return None
        asked = model if revision is None else f"{model} version {revision}"
        return _error(
            f"model {asked[:200]} is not here; this server has {settings.model_deployment} {settings.revision}", 404
        )

    async def metadata(model: str, version: str | None = None) -> Response:
        policy = arm.episodes.policy
        if refused := unknown(model, version):
            return refused
        if policy is None:
            return _error("the policy is still being loaded", 503)
        return _json(tensors.model_metadata(model, settings.revision, policy))

    async def ready(model: str, version: str | None = None) -> Response:
        if refused := unknown(model, version):
            return refused
        return _json({"name": model, "ready": arm.ready}, 200 if arm.ready else 503)

    async def infer(request: Request, model: str, version: str | None = None) -> Response:
        return unknown(model, version) or await _infer(arm, request)

    for base in ("/models/{model}", "/models/{model}/versions/{version}"):
        router.add_api_route(base, metadata, methods=["GET"])
        router.add_api_route(f"{base}/ready", ready, methods=["GET"])
        router.add_api_route(f"{base}/infer", infer, methods=["POST"])


async def _infer(arm: "Arm", request: Request) -> Response:
    start, says = time.perf_counter(), True
    shadow = arm.episodes.shadow
    copy = shadow.is_copy(request.headers.get(names.HEADER_ARM))
    other = None
    try:
        other = None if copy else arm.episodes.stand_in.arm(request)
        if other is not None:
            return await arm.episodes.stand_in.answer(other, request, await _body(request))
        policy = arm.episodes.loaded() if copy else arm.episodes.serving()
        body = await _body(request)
        arguments = (arm.settings.model_deployment, arm.settings.revision, policy, body)
        length = request.headers.get(tensors.HEADER_JSON_LENGTH)
        if not copy:
            arm.episodes.count_decision(None)
        if copy:
            return _encoded(await arm.beside(shadow.answer_copy, lambda: tensors.infer(*arguments, length)))
        if arm.offload or len(body) > OFFLOAD_BODY:
            encoded = await arm.beside(tensors.infer, *arguments, length, arm.episodes.inferred)
        else:
            encoded = tensors.infer(*arguments, length, arm.episodes.inferred)
        return _encoded(encoded)
    except tensors.InvalidRequest as error:
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
        if not copy:
            arm.metrics.failed("infer")
            log.error("policy failed: %s", error)
        return _error(str(error), 500)
    finally:
        if not copy and other is None and says:
            arm.metrics.observe["infer"](time.perf_counter() - start)


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY:
            raise Refusal(413, "TooLarge", f"body: longer than {MAX_BODY} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _encoded(encoded: tensors.Encoded) -> Response:
    if encoded.json_length is None:
        return Response(encoded.body, media_type="application/json")
    headers = {"Inference-Header-Content-Length": str(encoded.json_length)}
    return Response(encoded.body, media_type="application/octet-stream", headers=headers)
