"""Fields that are half name, half free text: redacted in one way at the publisher and at the data plane."""

import re
from collections.abc import Callable, Mapping

from learnloop_common.redaction.redactor import is_secret_name

MAX_ORIGIN = 256
_OF_EPISODE = re.compile(r"trajectory/[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\*?")
_COUNT = "tokens"


def safe_origin(origin: str, redactor: Callable[[str], str]) -> str:
    """Redacted origin of a memory, e.g. `mail/<EMAIL:9f3a1c02>`, cut to 256 characters; idempotent.

    `trajectory/<id>` stays as it is, as ids do everywhere: an erasure finds the memories of an episode by it.
    """
    if not origin or _OF_EPISODE.fullmatch(origin):
        return origin
    return redactor(origin)[:MAX_ORIGIN]


def safe_measurements(values: Mapping[str, float], redactor: Callable[[str], str]) -> dict[str, float]:
    """An outcome's values with redacted names. What is named as secrets are is left out: its number cannot be masked
    and stay one. Counts (`max_tokens`) stay."""
    return {
        redactor(name): value
        for name, value in values.items()
        if not is_secret_name(name) or name.lower().endswith(_COUNT)
    }
