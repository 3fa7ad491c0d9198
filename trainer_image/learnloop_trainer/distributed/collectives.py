"""The ranks of one run as one thing: sums, gathers and broadcasts. One rank alone needs no network at all."""

from collections.abc import Sequence
from typing import Protocol

import torch

from learnloop_trainer.training_order import Place

SHARED_GPU = "cpu:gloo,cuda:gloo"
"""The transport of ranks of which some share a GPU."""


class Group(Protocol):
    """All ranks. Every method but `close` is a collective: all ranks call it, in the same order."""

    place: Place
    transport: str
    """torch.distributed's name of what carries tensors; "" for one rank alone."""

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

    transport = ""

    def __init__(self) -> None:
        """Rank 0 of 1."""
        self.place = Place()

    def add_up(self, tensor: torch.Tensor) -> None:
        """See Group."""

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """See Group."""
        return list(numbers)

    def gather(self, body: bytes) -> list[bytes]:
        """See Group."""
        return [body]

    def broadcast(self, body: bytes | None) -> bytes:
        """See Group."""
        return body or b""

    def close(self) -> None:
        """See Group."""
