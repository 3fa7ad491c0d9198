"""Compare a manifest with the live object, so that an apply that would change nothing is left out."""

from typing import Any

from learnloop_operator.core.manifest_parts import quantity

_IDENTITY = ("apiVersion", "kind", "uid", "resourceVersion")


def covers(desired: Any, live: Any) -> bool:
    """`desired` is a subset of `live`: extra map keys (defaults, other managers) are fine, list lengths are not."""
    # Every pass looks through every field of every child, so the types are asked for by name: for an abstract one
    # (Mapping, Sequence) Python takes ten times as long.
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            return False
        for key, value in desired.items():
            if value is None or key in _IDENTITY:
                continue
            if not (covers(value, live[key]) if key in live else _absent_is_fine(value)):
                return False
        return True
    if not isinstance(desired, list | tuple):
        return _same_scalar(desired, live)
    if not isinstance(live, list | tuple) or len(desired) != len(live):
        return False
    return all(map(covers, desired, live))


def _absent_is_fine(value: Any) -> bool:
    # The API server leaves empty strings, lists and maps out of what it returns (omitempty).
    return isinstance(value, str | list | tuple | dict) and len(value) == 0


def _same_scalar(desired: Any, live: Any) -> bool:
    if isinstance(desired, bool) or isinstance(live, bool):
        return desired is live
    if desired == live:
        return True
    # The API server rewrites quantities ("0.5" becomes "500m").
    ours, others = quantity(desired), quantity(live)
    return ours is not None and ours == others
