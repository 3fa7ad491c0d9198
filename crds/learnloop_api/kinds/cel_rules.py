"""Rules the API server enforces (CEL, `x-kubernetes-validations`), written next to the fields they protect.

A model lists its rules in `cel_rules`; `self` is the object of that model with its defaults already applied. Only
functions that every Kubernetes since 1.29 has are used. Every message names the fix, because the API server prints it
after the field.

The API server evaluates every rule at every write, of the status too, and to look up one field it copies the list of
all fields beside it. In an object of thirty fields it is the look-ups that a write pays for, so what a rule can say at
the field itself (`at`) is said there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RULES = "x-kubernetes-validations"
PATTERN_MESSAGE = "x-learnloop-pattern-message"


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule of an object.

    `field` is the JSON path, below the object, that the refusal names, e.g. `.sha256`. `at` (camelCase) is the field of
    the object that the rule stands at: `self` is then its value, and nothing is checked while it is left out.
    """

    rule: str
    message: str
    field: str | None = None
    at: str | None = None

    def to_schema(self) -> dict[str, Any]:
        """The rule as an item of `x-kubernetes-validations`."""
        item: dict[str, Any] = {"rule": self.rule, "message": self.message}
        if self.field:
            item["fieldPath"] = self.field
        return item


def immutable(field: str, fix: str, *, optional: bool = False) -> tuple[Rule, ...]:
    """`field` (camelCase) never changes once the object exists; `optional`: nor may it appear or disappear."""
    message = f"{field} is immutable: {fix}"
    same = Rule("self == oldSelf", message, at=field)
    return (Rule(f"has(self.{field}) == has(oldSelf.{field})", message, f".{field}"), same) if optional else (same,)


def explained(message: str) -> Mapping[str, Any]:
    """`json_schema_extra` for a string with a pattern: the API server answers with `message`, not with the pattern."""
    return {PATTERN_MESSAGE: message}
