"""What the client of Weights & Biases keeps in a `.wandb` file: its records, in their order.

The file is a log of LevelDB (its doc/log_format.md) behind a header of seven bytes; a record is a protobuf message.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER, BLOCK, PREFIX = 7, 32768, 7
FULL, FIRST, LAST = 1, 2, 4


def records(path: Path) -> Iterator[Any]:
    """Each `wandb_internal.Record`."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2  # chosen by the version of protobuf when it is imported
    body, at, whole = path.read_bytes(), HEADER, b""
    while at + PREFIX <= len(body):
        left = BLOCK - at % BLOCK
        if left < PREFIX:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", body, at)
        part = body[at + PREFIX : at + PREFIX + length]
        whole = part if kind in (FULL, FIRST) else whole + part
        if kind in (FULL, LAST):
            yield messages.Record.FromString(whole)
        at += PREFIX + length


def history(path: Path) -> list[dict[str, Any]]:
    """The points of a run: values by name."""
    found = []
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            found.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return found
