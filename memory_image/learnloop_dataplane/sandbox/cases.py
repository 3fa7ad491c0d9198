"""A case on its way into a Job: code, tests and limits in one environment variable."""

import base64
import json
import zlib
from dataclasses import asdict, dataclass

VARIABLE = "LEARNLOOP_CASE"
LONGEST = 98_304
"""Characters; the kernel takes 131,072 of one variable."""


class TooLong(ValueError):
    """Code and tests do not fit in a Job."""


@dataclass(frozen=True)
class RunCase:
    """What is run, and how far.

    Attributes:
        seconds: of processor and of wall time, each.
        memory_megabytes: of the judged code.
    """

    code: str
    tests: str
    seconds: int
    memory_megabytes: int

    def written(self) -> str:
        """As `read` reads it.

        Raises:
            TooLong: it does not fit.
        """
        text = base64.b64encode(zlib.compress(json.dumps(asdict(self)).encode())).decode()
        if len(text) > LONGEST:
            raise TooLong(f"code and tests take {len(text)} characters as one variable, {LONGEST} fit")
        return text

    @classmethod
    def read(cls, text: str) -> "RunCase":
        """What `written` wrote."""
        return cls(**json.loads(zlib.decompress(base64.b64decode(text))))
