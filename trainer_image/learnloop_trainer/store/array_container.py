"""Named arrays with a few words of metadata in one safetensors blob. No pickle: what comes back is only numbers.

Written here by hand, one copy of the numbers and no more: a training run does it every second (the safetensors package
takes ten times as long for a replay buffer). Format: github.com/huggingface/safetensors, "Format".
"""

import json
import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

Arrays = dict[str, NDArray[np.generic]]
MAX_HEADER = 64 << 20
TYPES = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<i2": "I16", "<i4": "I32", "<i8": "I64", "<u2": "U16", "<u4": "U32"}
TYPES |= {"<u8": "U64", "<f2": "F16", "<f4": "F32", "<f8": "F64"}


def pack(arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]) -> bytes:
    """Arrays and metadata as one blob; the same ones make the same bytes. KeyError: a type that is no plain number."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    buffers, end = list[memoryview](), 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": TYPES[array.dtype.str], "shape": array.shape, "data_offsets": (begin, end)}
        buffers.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    return b"".join((struct.pack("<Q", len(text)), text, *buffers))


def unpack(body: bytes) -> tuple[Arrays, dict[str, str]]:
    """The inverse of `pack`; raises ValueError when the blob is not a safetensors container."""
    try:
        (length,) = struct.unpack_from("<Q", body)
        if length > min(MAX_HEADER, len(body) - 8):
            raise ValueError("its header is longer than the container")
        metadata = json.loads(body[8 : 8 + length]).get("__metadata__", {})
        return dict(load(body)), {str(key): str(value) for key, value in metadata.items()}
    except (struct.error, ValueError, AttributeError, SafetensorError) as error:
        raise ValueError(f"not a safetensors container: {error}") from None
    except RecursionError:
        raise ValueError("not a safetensors container: its header is nested too deep") from None
    except KeyError as error:  # of numpy's types
        raise ValueError(f"a safetensors container with numbers of type {error}, which is not read here") from None


def part(arrays: Mapping[str, NDArray[np.generic]], prefix: str) -> Arrays:
    """The arrays under `prefix/`, without the prefix."""
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}/")}


def under(prefix: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """The arrays with `prefix/` before their names."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}
