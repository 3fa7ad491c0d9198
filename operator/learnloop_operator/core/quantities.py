"""Quantities of Kubernetes: 500m, 1.5, 2Gi (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity)."""

import re
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(
    r"^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?[0-9]{1,2}))?$"
)
_SUFFIX = {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("0.001"), "k": Decimal(10) ** 3}
_SUFFIX |= {suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("MGTPE", start=2)}
_SUFFIX |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}


def quantity(value: Any) -> Decimal | None:
    """The number; None for an invalid quantity."""
    match = _QUANTITY.match(str(value)) if isinstance(value, str | int | float) else None
    if not match:
        return None
    return Decimal(match[1]) * (Decimal(10) ** int(match[3]) if match[3] else _SUFFIX[match[2] or ""])
