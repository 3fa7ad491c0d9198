"""Errors of the API server, one class per way of reacting."""

from collections.abc import Mapping
from typing import Any


class KubeError(Exception):
    """An answer that is not a success; `status` is the HTTP code, 0 when there was no answer."""

    permanent = False
    """True when the same request can never succeed: the user has to change something."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotFound(KubeError):
    """404: the object, or the whole kind (its CRD is missing), is not there."""


class KindMissing(NotFound):
    """404 for the whole kind: its CRD is not installed."""


class Conflict(KubeError):
    """409: exists already, or a precondition (uid, resourceVersion) no longer holds."""


class Forbidden(KubeError):
    """401 or 403: the operator's service account lacks a right, or a quota or admission policy refuses."""


class Invalid(KubeError):
    """400 or 422: the API server understood the object and will not have it."""

    permanent = True


class Gone(KubeError):
    """410: the resourceVersion or continue token is too old; start over."""


class Unavailable(KubeError):
    """No answer in time, 429 or 5xx, still so after the retries."""


class WebhookUnavailable(KubeError):
    """500, and a webhook that must be asked first does not answer: of this kind nothing can be written until its
    controller runs. The API server itself is well, and everything else goes on."""


class NotOurs(KubeError):
    """An object of the wanted name exists and belongs to somebody else; it is never taken over."""

    permanent = True


class NotLeading(KubeError):
    """The Lease is not (or no longer) held: nothing may be written."""


UNDECLARED = ("failed to create typed patch object", "field not declared in schema")
"""Text of the 500 with which the API server answers an apply of a field that the CRD lacks."""


def error_for(status: int, message: str, reason: str = "", retry_after: float | None = None) -> KubeError:
    kinds: dict[int, type[KubeError]] = {
        400: Invalid,
        401: Forbidden,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        410: Gone,
        422: Invalid,
        429: Unavailable,
    }
    if status == 404 and not reason:
        # A missing object is answered with a Status of reason NotFound, a missing kind with bare text.
        return KindMissing(message, status=status)
    if status == 500 and all(part in message for part in UNDECLARED):
        report = f"{message}: the definition of this kind is older or newer than what learnloop writes, replace its CRD"
        return Invalid(report, status=status, reason=reason)
    if status == 500 and "failed calling webhook" in message:
        return WebhookUnavailable(message, status=status, reason=reason)
    fallback = Unavailable if status >= 500 else KubeError
    return kinds.get(status, fallback)(message, status=status, reason=reason, retry_after=retry_after)


class InvalidSpec(KubeError):
    """The API server let a spec through that the operator cannot use (another version of the CRDs)."""

    permanent = True

    def __init__(self, message: str, live: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.live = live
