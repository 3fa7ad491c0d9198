"""JSON schemas whose patterns match in linear time.

The library comes with the first policy that has one: it is 3 MiB, and most services never need it.
"""

from collections.abc import Iterator
from typing import Any

PATTERN_BYTES = 2**20
"""Room for a compiled pattern; `(a{1000}){1000}` wants more and is refused."""
PATTERNS_BYTES, LEAST_BYTES = 2**23, 2**14
"""Room for all patterns of a schema, which they share; each has the least. `^[a-z]{2}-[0-9]{4}$` fits in the least."""


def validator(schema: dict[str, Any] | bool) -> Any:
    """What a JSON value is checked by; it fetches nothing.

    Raises:
        ValueError: it is no schema, refers to something outside of it, or has a pattern that is none.
    """
    import jsonschema_rs

    count = patterns(schema)
    room = max(LEAST_BYTES, min(PATTERN_BYTES, PATTERNS_BYTES // max(1, count)))
    linear = jsonschema_rs.RegexOptions(size_limit=room, dfa_size_limit=room)
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=linear, offline=True)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from None
    except ValueError as error:
        if count < 2:
            raise
        why = str(error).splitlines()[0][:200]
        raise ValueError(f"{why} (each of its {count} patterns may compile to {room >> 10} KiB)") from None


def patterns(schema: Any) -> int:
    """How many patterns it has at most; what only looks like one counts, too."""
    count = 0
    for part in objects(schema):
        named = part.get("patternProperties")
        count += ("pattern" in part) + (len(named) if isinstance(named, dict) else 0)
    return count


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every JSON object within it, however deep."""
    rest = [schema]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            yield value
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)


def accepted(accepts: Any, output: Any) -> str | None:
    """None: the validator accepts it. Else where it does not, and why, in one sentence."""
    first = next(iter(accepts.iter_errors(output)), None)
    if first is None:
        return None
    where = "/".join(map(str, first.instance_path)) or "the output"
    return f"{where}: {str(first.message)[:200]}"
