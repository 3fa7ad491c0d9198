"""Weights that ranks divide, and AdamW over them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed.torch_group import Group, computing

FIRST, SECOND, UPDATES = "exp_avg", "exp_avg_sq", "step"


class Adam:
    """An optimiser of tensors that carry their gradient; its moments are 0 before the first step."""

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        self.weights = list(weights)
        self._adam = torch.optim.AdamW(self.weights, fused=True)
        for weight in self.weights:
            self._adam.state[weight] = {
                UPDATES: torch.zeros((), device=weight.device),
                FIRST: torch.zeros_like(weight),
                SECOND: torch.zeros_like(weight),
            }

    def moments(self, name: str) -> list[torch.Tensor]:
        """FIRST or SECOND of each weight."""
        return [self._adam.state[weight][name] for weight in self.weights]

    @torch.no_grad()
    def step(self, rate: float, decay: float, updates: int) -> None:
        """Move the weights; `updates`: how many steps there were, this one included."""
        for weight in self.weights:
            self._adam.state[weight][UPDATES].fill_(updates - 1)
        self._adam.param_groups[0].update(lr=rate, weight_decay=decay)
        self._adam.step()


# A parameter [n, ...] is divided by rows as torch.chunk does it: ceil(n / ranks) each, the last ranks have fewer or
# none.

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


# Divided, each rank holds a part of every weight. A block's weights come together while the block computes, and go
# again: a rank needs its part of all, and the whole of one block (Zhao et al., 2023, arXiv 2304.11277). Bringing them
# together is a collective, and ranks have conversations of different lengths: `each` and `speaking` let a rank that
# has nothing left compute on nothing until the others are done, so that all call the model equally often.

T = TypeVar("T")
Work = Callable[[Any], T]


class WholeModel:
    """All weights are here: nobody waits for anybody."""

    group: Group | None = None

    def __init__(self, model: Any) -> None:
        """`model`: a causal language model of the transformers library."""
        self.model = model

    def run(self, work: Work[T]) -> T:
        """What `work` makes of the model; of tensors, tuples and the library's outputs. Collective where divided."""
        return work(self.model)

    def each(self, items: Iterable[T], work: Callable[[T], object], idle: Callable[[], object]) -> None:
        """Do the work on each item. Where divided, collective, and `idle` calls the model as `work` does."""
        del idle
        for item in items:
            work(item)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the loss's gradient."""
        loss.backward()  # type: ignore[no-untyped-call]

    @contextmanager
    def speaking(self) -> Iterator[Any]:
        """The model as a sampler calls it."""
        yield self.model


class DividedModel(WholeModel):
    """Each rank holds its part of the weights; parameters that are added later are whole on every rank."""

    def __init__(self, model: Any, group: Group, device: torch.device) -> None:
        """Divides `model`, which lies in the processor's memory, and puts this rank's part on `device`. Collective.

        Raises ConfigError for an architecture whose blocks the transformers library does not name.
        """
        from torch.distributed.device_mesh import init_device_mesh  # they take a while, and few runs need them
        from torch.distributed.fsdp import fully_shard

        super().__init__(model)
        self.group = group
        names = set(getattr(model, "_no_split_modules", None) or ())
        blocks = [part for part in model.modules() if type(part).__name__ in names]
        if not blocks:
            problem = f"is {type(model).__name__}, which does not name the blocks it is made of"
            raise ConfigError("spec.data.languageModel.base", "", problem, "set sharding to none, or use another base")
        mesh = init_device_mesh(device.type, (group.place.size,))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        self._root = _Root(model)
        fully_shard(self._root, mesh=mesh)

    def run(self, work: Work[T]) -> T:
        """Raises PeerLost."""
        with computing():
            return self._root(work)  # type: ignore[no-any-return]

    def each(self, items: Iterable[T], work: Callable[[T], object], idle: Callable[[], object]) -> None:
        """Raises PeerLost."""
        for item in items:
            self._others(busy=True)
            work(item)
        while self._others(busy=False):
            idle()

    def _others(self, *, busy: bool) -> bool:
        """Collective: is any rank about to call the model?"""
        assert self.group is not None  # given when it was made
        return self.group.sum([float(busy)])[0] > 0

    def backward(self, loss: torch.Tensor) -> None:
        """Raises PeerLost."""
        with computing():
            super().backward(loss)

    @contextmanager
    def speaking(self) -> Iterator[Any]:
        """Collective: it ends when no rank speaks any more."""
        yield _Speaking(self)
        nothing = torch.zeros(1, 1, dtype=torch.int64, device=next(self.model.parameters()).device)
        self.each((), lambda _: None, lambda: self.run(lambda model: model(input_ids=nothing, use_cache=False)))

    def spoken(self, **inputs: Any) -> Any:
        """The model's output, in step with the other ranks."""
        self._others(busy=True)
        return self.run(lambda model: model(**inputs))


class _Root(nn.Module):
    """What is called, so that embeddings and output layer come together whatever part of the model is asked."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Work[T]) -> T:
        return work(self.model)


class _Speaking:
    """A divided model as samplers use one."""

    def __init__(self, divided: DividedModel) -> None:
        self._divided, self.config = divided, divided.model.config

    def __call__(self, **inputs: Any) -> Any:
        return self._divided.spoken(**inputs)

    def parameters(self) -> Iterator[nn.Parameter]:
        return self._divided.model.parameters()  # type: ignore[no-any-return]


def held(model: Any) -> WholeModel:
    """The model as one that is asked; what is one already stays as it is."""
    return model if isinstance(model, WholeModel) else WholeModel(model)
