"""A copy of each record for collectors of logs: one JSON object a line on standard output, `"stream": "audit"`.

The chain is the record. A line follows the commit of its record, so one may be missing where the process died between
the two; none is ever written of what is not in the chain.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from learnloop_dataplane.audit.chain_record import Sealed, canonical

APP, STREAM = "learnloop-data", "audit"


def lines(sealed: Sequence[Sealed]) -> str:
    """The lines, each with its line break."""
    return "".join(f"{_line(link)}\n" for link in sealed)


def write(sealed: Sequence[Sealed], stream: TextIO | None = None) -> None:
    """Whole lines, at once. What cannot be written is lost here, and in the chain all the same."""
    where = sys.stdout if stream is None else stream
    try:
        where.write(lines(sealed))
        where.flush()
    except (OSError, ValueError):  # nobody reads, or it is closed
        return


def _line(link: Sealed) -> str:
    told = {"app": APP, "stream": STREAM, "hash": link.hash.hex(), **asdict(link.entry)}
    return canonical(told).decode()
