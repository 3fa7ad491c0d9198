"""Rules the API server enforces (CEL, `x-kubernetes-validations`), written next to the fields they protect.

A model lists its rules in `cel_rules`; `self` is the object of that model with its defaults already applied. Only
functions that every Kubernetes since 1.29 has are used. Every message names the fix, because the API server prints it
after the field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATTERN_MESSAGE = "x-learnloop-pattern-message"


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule of an object.

    `field` is the JSON path, below the object, that the refusal names, e.g. `.sha256`.
    """

    rule: str
    message: str
    field: str | None = None

    def to_schema(self) -> dict[str, Any]:
        """The rule as an item of `x-kubernetes-validations`."""
        item: dict[str, Any] = {"rule": self.rule, "message": self.message}
        if self.field:
            item["fieldPath"] = self.field
        return item


def immutable(field: str, fix: str, *, optional: bool = False) -> Rule:
    """`field` (camelCase) never changes once the object exists; `optional`: nor may it appear or disappear."""
    same = f"self.{field} == oldSelf.{field}"
    if optional:
        same = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {same})"
    return Rule(same, f"{field} is immutable: {fix}", f".{field}")


def explained(message: str) -> Mapping[str, Any]:
    """`json_schema_extra` for a string with a pattern: the API server answers with `message`, not with the pattern."""
    return {PATTERN_MESSAGE: message}
