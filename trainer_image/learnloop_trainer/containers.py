"""Named arrays with a few words of metadata in one safetensors blob. No pickle: what comes back is only numbers."""

import json
import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

Arrays = dict[str, NDArray[np.generic]]
MAX_HEADER = 64 << 20


def pack(arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]) -> bytes:
    """Arrays and metadata as one blob."""
    return bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, dict(metadata)))


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


def part(arrays: Mapping[str, NDArray[np.generic]], prefix: str) -> Arrays:
    """The arrays under `prefix/`, without the prefix."""
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}/")}


def under(prefix: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """The arrays with `prefix/` before their names."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}
