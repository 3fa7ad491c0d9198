"""A run's store, and the container of its arrays.

Written here by hand, one copy of the numbers and no more: a training run does it every second (the safetensors package
takes ten times as long for a replay buffer). Format: github.com/huggingface/safetensors, "Format".
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.language import Preference
from learnloop_api.wire.training import Heartbeat, Manifest
from learnloop_api.wire.trajectory import EpisodeSelection, LoggedEpisode
from learnloop_trainer.errors import StoreRefused

Arrays = dict[str, NDArray[np.generic]]
M = TypeVar("M", bound=BaseModel)
MAX_HEADER = 64 << 20
TYPES = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<i2": "I16", "<i4": "I32", "<i8": "I64", "<u2": "U16", "<u4": "U32"}
TYPES |= {"<u8": "U64", "<f2": "F16", "<f4": "F32", "<f8": "F64"}


def pack(arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]) -> bytes:
    """Arrays and metadata as one blob; the same ones make the same bytes. KeyError: a type other than a number."""
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
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}/")}


def under(prefix: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


MAX_ARTIFACT = 512 << 20
MAX_CHECKPOINT = 4 << 30


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """The newest durable checkpoint."""

    body: bytes
    step: int
    sha256: str


class Store(Protocol):
    """One run's view of the store. Raises StoreUnavailable (worth a retry) or StoreRefused (not worth one)."""

    def heartbeat(self, beat: Heartbeat) -> None:
        """Replace the run's heartbeat. One quick attempt, no retries."""

    def put_checkpoint(self, body: bytes, step: int) -> str:
        """Make this the newest checkpoint; returns its SHA-256 once it is durable."""

    def checkpoint(self, back: int = 0) -> SavedCheckpoint | None:
        """The newest durable checkpoint, its digest checked; `back` 1: the one before it. StoreRefused: damaged."""

    def put_artifact(self, body: bytes) -> str:
        """Store an exported policy by its content; returns its URI once it is durable."""

    def artifact(self, uri: str) -> bytes:
        """The bytes behind the URI of an artifact in this store."""

    def put_manifest(self, manifest: Manifest) -> None:
        """Finish the run; returns once the manifest is durable."""

    def manifest(self) -> Manifest | None:
        """The manifest, when the run is already finished."""

    def observations(self, agent: str, limit: int) -> list[list[float]]:
        """Observations the agent really saw, newest first; an empty list when none are recorded."""

    def reward_policy(self, name: str, revision: str) -> RewardPolicySpec:
        """A published RewardPolicy; StoreRefused: no such revision."""

    def preferences(self, agent: str, limit: int) -> list[Preference]:
        """Preferences of people among the agent's answers, newest first, at most `limit`."""

    def episodes(
        self, agent: str, selection: EpisodeSelection, limit: int, patience: float | None = None
    ) -> list[LoggedEpisode]:
        """The agent's logged episodes that meet the selection, newest first, until they hold `limit` steps.

        None is cut, none comes twice. `patience`: seconds that it may take for the store to answer; None: as ever.
        """


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def verified(body: bytes, sha256: str, what: str) -> bytes:
    """The body, if its digest is the expected one; raises StoreRefused if not."""
    if digest(body) != sha256:
        raise StoreRefused(f"{what}: SHA-256 is {digest(body)}, {sha256} was expected; the stored copy is damaged")
    return body


def parsed(model: type[M], body: bytes, what: str, fix: str) -> M:
    """The model in a JSON document; raises StoreRefused with the fix."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise StoreRefused(f"{what}: {error.errors()[0]['msg']}; {fix}") from None
