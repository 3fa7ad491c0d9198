"""Compare a manifest with the live object, so that an apply that would change nothing is left out."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from learnloop_operator.core.manifests import quantity
from learnloop_operator.core.plan import Manifest

_ATOMIC = ("selector", "nodeSelector")
"""Maps of labels that have one owner as a whole: managedFields do not list their keys, and nothing adds defaults."""
_IDENTITY = ("apiVersion", "kind", "managedFields", "uid", "resourceVersion")


def unchanged(desired: Manifest, live: Manifest, manager: str, subresource: str = "") -> bool:
    """True when `live` already has all of `desired`, and `manager` owns nothing there that `desired` dropped."""
    if subresource and desired[subresource] == live[subresource]:
        return True  # nothing is there that could have been dropped
    return covers(desired, live) and not dropped(desired, live, manager, subresource)


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


def dropped(desired: Manifest, live: Manifest, manager: str, subresource: str = "") -> bool:
    """True if `manager` owns a field of `live` that `desired` no longer has. Applying would remove it."""
    for entry in live.get("metadata", {}).get("managedFields") or ():
        ours = entry.get("manager") == manager and entry.get("operation") == "Apply"
        fields = entry.get("fieldsV1") or {}
        if ours and entry.get("subresource", "") == subresource and _has_dropped(fields, desired, live):
            return True
    return False


def _has_dropped(fields: Mapping[str, Any], desired: Any, live: Any) -> bool:
    for path, below in fields.items():
        tag, rest = path[:2], path[2:]
        if tag == "f:":
            if not isinstance(desired, dict) or rest not in desired:
                return True
            item: Any = desired[rest]
            there = live.get(rest) if isinstance(live, dict) else None
            if not below and rest in _ATOMIC and isinstance(there, dict) and set(there) - set(item or ()):
                return True
        elif tag == "k:":
            keys = _keys(rest)
            item = _find(desired, keys)
            if item is None:
                return True
            there = _find(live, keys)
        elif tag == "v:":
            if json.loads(rest) not in (desired or ()):
                return True
            continue
        else:
            continue
        if below and _has_dropped(below, item, there):
            return True
    return False


@lru_cache(maxsize=4096)
def _keys(text: str) -> tuple[tuple[str, Any], ...]:
    """Keys of an element of a list, as managedFields write them; there are few, and they come again and again."""
    return tuple(json.loads(text).items())


def _find(items: Any, keys: tuple[tuple[str, Any], ...]) -> Any:
    """The element with these keys; None when there is none."""
    for item in items or ():
        # A key that the API server defaulted (a port's protocol) may be missing from what we wrote.
        if isinstance(item, dict) and all(item.get(key, value) == value for key, value in keys):
            return item
    return None
