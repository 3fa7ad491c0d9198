"""Values: what decisions are made of. Dataclasses that are equal when their fields are, and that nobody changes.

`mypy --strict` sees to the latter. A dataclass that is frozen at run time as well goes through `object.__setattr__`
with every field, and making one takes some four times as long (measured: 3.9 to 4.6). A look at a rollout makes some
twenty of them. With the part `value-objects` off they are frozen at run time too.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

from learnloop_operator.tuning.switches import SWITCHES

T = TypeVar("T")
FROZEN = not SWITCHES.is_on("value-objects")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A value with slots."""
    return dataclass(slots=True, frozen=FROZEN, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def named_value(cls: type[T]) -> type[T]:
    """The same, made by the names of its fields only."""
    return dataclass(slots=True, frozen=FROZEN, unsafe_hash=True, kw_only=True)(cls)
