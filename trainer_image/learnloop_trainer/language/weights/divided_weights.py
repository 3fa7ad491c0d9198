"""This rank's part of weights that FSDP2 divides, with Adam's moments of it, and the whole of them where it is needed.

A parameter [n, ...] is divided by rows as torch.chunk does it: ceil(n / ranks) each, the last ranks have fewer or none.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_trainer.distributed.collectives import Group
from learnloop_trainer.distributed.torch_group import computing
from learnloop_trainer.language.weights.adam import FIRST, SECOND, Adam

Floats = NDArray[np.float32]


class DividedWeights:
    """Trainable parameters that are divided, in their order."""

    def __init__(self, parameters: Sequence[Any], group: Group) -> None:
        """`parameters`: DTensors, as FSDP2 makes them. Moments are 0."""
        self._parameters, self._group = list(parameters), group
        self._adam = Adam(self._own())

    def __len__(self) -> int:
        """Numbers in the whole of them."""
        return sum(part.numel() for part in self._parameters)

    def _own(self) -> list[torch.Tensor]:
        return [part.detach().to_local() for part in self._parameters]

    def _gradients(self) -> list[torch.Tensor]:
        """Sums over the ranks: FSDP leaves means."""
        found = []
        for part, own in zip(self._parameters, self._own(), strict=True):
            grad = part.grad
            found.append(torch.zeros_like(own) if grad is None else grad.to_local() * self._group.place.size)
        return found

    @torch.no_grad()
    def squares(self) -> float:
        """Collective: the sum of the squares of the gradient."""
        own = sum(float(gradient.double().square().sum()) for gradient in self._gradients())
        return self._group.sum([own])[0]

    @torch.no_grad()
    def step(self, scale: float, rate: float, decay: float, updates: int) -> None:
        """One step of AdamW with the gradient times `scale`, which is then forgotten."""
        for weight, own, gradient in zip(self._adam.weights, self._own(), self._gradients(), strict=True):
            weight.data, weight.grad = own, gradient.mul_(scale)
        self._adam.step(rate, decay, updates)
        self.forget()

    def forget(self) -> None:
        """No gradient."""
        for part in (*self._parameters, *self._adam.weights):
            part.grad = None

    def _whole(self, owns: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Collective, one after another: the whole of what the ranks have parts of."""
        from torch.distributed.tensor import DTensor

        for own, like in zip(owns, self._parameters, strict=True):
            with computing():
                whole = DTensor.from_local(
                    own, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
                ).full_tensor()
            yield whole

    def _kept(self, owns: Sequence[torch.Tensor]) -> Floats:
        """The whole as one array on rank 0; an empty one elsewhere, whose memory is not needed for it."""
        found = [np.empty(0, dtype=np.float32)]
        for whole in self._whole(owns):
            if self._group.place.rank == 0:
                found.append(whole.float().cpu().numpy().reshape(-1))
        return np.concatenate(found)

    def state(self) -> dict[str, Floats]:
        """Collective: weights and moments, whole on rank 0 and empty elsewhere."""
        return {name: self._kept(owns) for name, owns in self._saved().items()}

    def _saved(self) -> dict[str, list[torch.Tensor]]:
        return {"vector": self._own(), "first": self._adam.moments(FIRST), "second": self._adam.moments(SECOND)}

    def arrays(self) -> list[Floats]:
        """Collective: each parameter, whole on rank 0; an empty list elsewhere."""
        wholes = (whole.float().cpu().numpy() for whole in self._whole(self._own()))
        kept = [whole if self._group.place.rank == 0 else None for whole in wholes]
        return [whole for whole in kept if whole is not None]

    def add_to(self, digest: "hashlib._Hash") -> None:
        """Collective: the bytes of the whole weights, which all ranks see alike."""
        for whole in self._whole(self._own()):
            digest.update(whole.float().cpu().numpy().tobytes())

    @torch.no_grad()
    def restore(self, vector: Floats, first: Floats, second: Floats) -> None:
        """Take this rank's part of whole arrays; raises ValueError where they have another length."""
        given = {"vector": vector, "first": first, "second": second}
        for name, owns in self._saved().items():
            whole = given[name]
            if whole.shape != (len(self),):
                raise ValueError(f"{name} has shape {whole.shape}, ({len(self)},) was expected")
            begin = 0
            for part, own in zip(self._parameters, owns, strict=True):
                end = begin + part.numel()
                put_rows(own, whole[begin:end].reshape(part.shape), self._group)
                begin = end
        self.forget()


@torch.no_grad()
def put_rows(own: torch.Tensor, whole: NDArray[np.generic], group: Group) -> None:
    """Fill this rank's rows from the whole array [n, ...]."""
    rows = -(-len(whole) // group.place.size)
    begin = min(group.place.rank * rows, len(whole))
    own.copy_(torch.from_numpy(np.array(whole[begin : begin + rows], dtype=np.float32)))
