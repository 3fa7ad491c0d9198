"""A certificate for the pod that asks, for names of its own namespace."""

from typing import Annotated

from fastapi import APIRouter, Response

from learnloop_api.wire.certificates import CertificateRequest, IssuedPair
from learnloop_dataplane.api.requests import Caller, Certificates, answer, json_body

router = APIRouter(prefix="/api/v1", tags=["certificates"])


@router.post("/certificates", response_model=IssuedPair)
async def post_certificate(
    body: Annotated[CertificateRequest, json_body(CertificateRequest)], certificates: Certificates, caller: Caller
) -> Response:
    """A new key and its certificate; nothing is stored. Ask again when two thirds of its life are over."""
    issued = await certificates.issue(caller.namespace, body.names)
    response = answer(issued)
    response.headers["cache-control"] = "no-store"
    return response
