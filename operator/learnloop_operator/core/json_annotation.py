"""JSON in an annotation of an object of ours, read back from the live one."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def noted(metadata: object, annotation: str, model: type[M]) -> M | None:
    """The note as a `model`; one that is none counts as none, for anybody may have written there."""
    notes = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = notes.get(annotation) if isinstance(notes, Mapping) else None
    try:
        return model.model_validate_json(text) if isinstance(text, str) else None
    except ValueError:
        return None
