"""JSON schemas whose patterns match in linear time.

The library comes with the first policy that has one: it is 3 MiB, and most services never need it.
"""

from typing import Any

PATTERN_BYTES = 2**20
"""Room for a compiled pattern; `(a{1000}){1000}` wants more and is refused."""


def validator(schema: dict[str, Any] | bool) -> Any:
    """What a JSON value is checked by; it fetches nothing.

    Raises:
        ValueError: it is no schema, refers to something outside of it, or has a pattern that is none.
    """
    import jsonschema_rs

    linear = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=linear, offline=True)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from None
