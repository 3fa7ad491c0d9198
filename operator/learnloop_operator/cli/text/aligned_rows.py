"""Aligned text for terminals."""

from typing import Any


def rows(pairs: list[tuple[str, Any]]) -> str:
    """`label  value` lines; pairs without a value are left out."""
    shown = [(label, value) for label, value in pairs if value not in (None, "", [])]
    width = max((len(label) for label, _ in shown), default=0)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in shown)


def number(value: Any, digits: int = 1) -> str | None:
    """A figure, or None where there is none yet."""
    return None if value is None else f"{float(value):.{digits}f}"


def condition(body: dict[str, Any], type_: str) -> dict[str, Any]:
    """A condition of the object; empty when it is not reported."""
    return next((item for item in status(body).get("conditions", []) if item["type"] == type_), {})


def status(body: dict[str, Any]) -> dict[str, Any]:
    """The object's status, empty before the operator has seen it."""
    return body.get("status") or {}
