"""Code, calls and limits of a run, in one environment variable. Imports the standard library alone."""

import base64
import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

VARIABLE = "LEARNLOOP_CASE"
LONGEST = 98_304
"""Characters; the kernel takes 131,072 of one variable."""


class TooLong(ValueError):
    """Code and calls do not fit in a Job."""


@dataclass(frozen=True)
class RunCase:
    """Code, calls and limits.

    Attributes:
        calls: each a function's name, arguments and named arguments.
        seconds: of processor and of wall time, each.
        memory_megabytes: of the judged code.
    """

    code: str
    calls: list[list[Any]]
    seconds: int
    memory_megabytes: int

    def written(self) -> str:
        """As `read` reads it.

        Raises:
            TooLong: it does not fit.
        """
        text = base64.b64encode(zlib.compress(json.dumps(asdict(self)).encode())).decode()
        if len(text) > LONGEST:
            raise TooLong(f"code and calls take {len(text)} characters as one variable, {LONGEST} fit")
        return text

    @classmethod
    def read(cls, text: str) -> "RunCase":
        """Reads what `written` wrote."""
        return cls(**json.loads(zlib.decompress(base64.b64decode(text))))
