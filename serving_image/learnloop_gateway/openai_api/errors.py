"""How the gateway says no, in the shape that OpenAI's clients read (API reference, "Error codes")."""

from typing import Any

import orjson
from pydantic import ValidationError

from learnloop_serving.refusal import Refusal

LONGEST = 1000


class ApiError(Exception):
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        param: the field at fault, where one is.
        code: for programs, e.g. context_length_exceeded.
        retry_after: seconds, for the header of that name; 0: none.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str = "", retry_after: int = 0):
        super().__init__(message)
        self.status = status
        self.message = message[:LONGEST]
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """OpenAI's name for the class of errors that the status belongs to."""
        if self.status in (401, 403):
            return "authentication_error" if self.status == 401 else "permission_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def to_json(self) -> bytes:
        """The body."""
        error: dict[str, Any] = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return orjson.dumps({"error": error})


def of_refusal(refusal: Refusal) -> ApiError:
    """The same refusal in OpenAI's shape."""
    return ApiError(refusal.status, refusal.message, code=refusal.reason, retry_after=refusal.retry_after)


def invalid(error: ValidationError) -> ApiError:
    """400 that names the first field that is wrong, its value and what was expected."""
    every = error.errors(include_url=False)
    first = next((one for one in every if one["type"] == "value_error"), every[0])  # of a union, the one that says why
    field = ".".join(str(part) for part in first["loc"]) or None
    told = f"{field or 'body'}: {repr(first.get('input'))[:80]}: {first['msg'].removeprefix('Value error, ')}"
    return ApiError(400, told, param=field, code="invalid_value")
