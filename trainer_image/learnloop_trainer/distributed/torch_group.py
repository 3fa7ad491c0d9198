"""Collectives among ranks."""

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed.rendezvous import Meeting
from learnloop_trainer.errors import PeerLost
from learnloop_trainer.training_order import Place

SHARED_GPU = "cpu:gloo,cuda:gloo"
"""The transport of ranks of which some share a GPU."""


class Group(Protocol):
    """All ranks. Every method but `close` is a collective: all ranks call it, in the same order."""

    place: Place

    def add_up(self, tensor: torch.Tensor) -> None:
        """Replace the tensor on every rank by the sum over all ranks."""

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Element-wise sum of a few numbers over all ranks."""

    def gather(self, body: bytes) -> list[bytes]:
        """The bytes of all ranks, in order, on rank 0; an empty list elsewhere."""

    def broadcast(self, body: bytes | None) -> bytes:
        """Rank 0's bytes on all ranks."""

    def close(self) -> None:
        """Leave in good order. Not a collective."""


class Alone:
    """A group of one."""

    def __init__(self) -> None:
        self.place = Place()

    def add_up(self, tensor: torch.Tensor) -> None:
        """See Group."""

    def sum(self, numbers: Sequence[float]) -> list[float]:
        return list(numbers)

    def gather(self, body: bytes) -> list[bytes]:
        return [body]

    def broadcast(self, body: bytes | None) -> bytes:
        return body or b""

    def close(self) -> None:
        """See Group."""


VARIABLE = "LEARNLOOP_COLLECTIVE_SECONDS"
T = TypeVar("T")


def _timeout() -> timedelta:
    text = os.environ.get(VARIABLE, "60")
    if not text.isdecimal() or not 1 <= int(text) <= 86400:
        raise ConfigError(VARIABLE, text, "is not a number of seconds from 1 to 86400", "correct it in spec.pod.env")
    return timedelta(seconds=int(text))


def _guarded(action: Callable[[], T]) -> T:
    """Run a collective; whatever breaks it is the loss of a peer."""
    try:
        return action()
    except RuntimeError as error:
        raise PeerLost(" ".join(str(error).split())[:200]) from None


def transport(devices: Sequence[str], *, nccl: bool) -> str:
    """torch.distributed's backend for ranks on these devices, "" for the CPU and else a GPU's own number.

    NCCL refuses two ranks on one GPU, as a device plugin that shares GPUs in time gives them; gloo takes them.
    """
    if not all(devices):
        return "gloo"
    alone = len(set(devices)) == len(devices)
    return "cpu:gloo,cuda:nccl" if nccl and alone else SHARED_GPU


def identity(device: torch.device) -> str:
    """The number that a GPU has in the whole world; "" for the CPU."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def _everybodys(meeting: Meeting, own: str) -> list[str]:
    """The message of each rank, by rank; waits until all have."""
    meeting.store.set(f"device/{meeting.generation}/{meeting.place.rank}", own)
    keys = [f"device/{meeting.generation}/{rank}" for rank in range(meeting.place.size)]
    return [meeting.store.get(key).decode() for key in keys]


class Peers:
    """A broken or overdue collective raises PeerLost on every surviving rank."""

    def __init__(self, meeting: Meeting, device: torch.device) -> None:
        """Collective: connect all ranks of the meeting."""
        self.place, self._meeting = meeting.place, meeting
        devices = _guarded(lambda: _everybodys(meeting, identity(device)))
        self.transport = transport(devices, nccl=dist.is_nccl_available())
        _guarded(
            lambda: dist.init_process_group(
                backend=self.transport,
                store=meeting.scoped(),
                rank=self.place.rank,
                world_size=self.place.size,
                timeout=_timeout(),
            )
        )

    def add_up(self, tensor: torch.Tensor) -> None:
        _guarded(lambda: dist.all_reduce(tensor))

    def sum(self, numbers: Sequence[float]) -> list[float]:
        tensor = torch.tensor(numbers, dtype=torch.float64)
        self.add_up(tensor)
        return [float(number) for number in tensor.tolist()]

    def gather(self, body: bytes) -> list[bytes]:
        """Sizes first, then each body point to point."""
        sizes = torch.zeros(self.place.size, dtype=torch.int64)
        sizes[self.place.rank] = len(body)
        self.add_up(sizes)
        if self.place.rank:
            _guarded(lambda: dist.send(_tensor(body), dst=0))
            return []
        bodies = [body]
        for rank in range(1, self.place.size):
            buffer = torch.empty(int(sizes[rank]), dtype=torch.uint8)
            _guarded(lambda b=buffer, r=rank: dist.recv(b, src=r))  # type: ignore[misc]
            bodies.append(buffer.numpy().tobytes())
        return bodies

    def broadcast(self, body: bytes | None) -> bytes:
        (size,) = self.sum([float(len(body or b"")) if self.place.rank == 0 else 0.0])
        if not size:
            return b""
        buffer = _tensor(body or b"") if self.place.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
        _guarded(lambda: dist.broadcast(buffer, src=0))
        return buffer.numpy().tobytes()

    def close(self) -> None:
        dist.destroy_process_group()


def _tensor(body: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(body, dtype=np.uint8).copy())
