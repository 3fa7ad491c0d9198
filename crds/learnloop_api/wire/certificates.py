"""A pod's request for a certificate, and the answer."""

from typing import Annotated

from pydantic import Field

from learnloop_api.wire.base import WireModel


class CertificateRequest(WireModel):
    """The DNS names of the caller's own namespace that it serves under."""

    names: list[Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]] = Field(
        min_length=1, max_length=8, description="each NAME.NAMESPACE.svc, of a Service of the caller's namespace"
    )


class IssuedPair(WireModel):
    """A certificate for these names, with its key."""

    certificate: str = Field(max_length=32_768, description="PEM: the certificate, then what it was made by")
    key: str = Field(max_length=8192, description="PEM, PKCS#8; it is kept nowhere else")
    renew_after_seconds: float = Field(gt=0, le=31_536_000, description="two thirds of its life")
