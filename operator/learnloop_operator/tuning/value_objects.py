"""Values: what decisions are made of. Dataclasses that are equal when their fields are, and that nobody changes.

`mypy --strict` sees to the latter. A dataclass that is frozen at run time as well takes three to four times as long to
make, for it goes through `object.__setattr__` with every field, and a look at a rollout makes some twenty of them.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A value with slots."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def named_value(cls: type[T]) -> type[T]:
    """The same, made by the names of its fields only."""
    return dataclass(slots=True, unsafe_hash=True, kw_only=True)(cls)
