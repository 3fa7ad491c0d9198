"""Specs from the API server, validated once more: an operator may meet CRDs of another version."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from learnloop_operator.kube.errors import InvalidSpec

M = TypeVar("M", bound=BaseModel)


def read_spec(model: type[M], live: Mapping[str, Any]) -> M:
    """The spec of a live object.

    Raises:
        InvalidSpec: names the field, and goes into the object's status.
    """
    return _read(model, live, "spec")


def read_status(model: type[M], live: Mapping[str, Any]) -> M:
    """The status of a live object. What cannot be read is never taken for an empty one: that would forget a decision.

    Raises:
        InvalidSpec: names the field.
    """
    return _read(model, live, "status")


def _read(model: type[M], live: Mapping[str, Any], part: str) -> M:
    try:
        return model.model_validate(live.get(part) or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join([part, *(str(step) for step in first["loc"])])
        raise InvalidSpec(f"{where}: {first['msg']}", live) from None
