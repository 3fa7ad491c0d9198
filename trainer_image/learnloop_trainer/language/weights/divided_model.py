"""A model whose weights are all here, or are divided among the ranks by PyTorch's FSDP2.

Divided, each rank holds a part of every weight. A block's weights come together while the block computes, and go
again: a rank needs its part of all, and the whole of one block (Zhao et al., 2023, arXiv 2304.11277). Bringing them
together is a collective, and ranks have conversations of different lengths: `each` and `speaking` let a rank that has
nothing left compute on nothing until the others are done, so that all call the model equally often.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed.collectives import Group
from learnloop_trainer.distributed.torch_group import computing

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
        """See WholeModel. Raises PeerLost."""
        with computing():
            return self._root(work)  # type: ignore[no-any-return]

    def each(self, items: Iterable[T], work: Callable[[T], object], idle: Callable[[], object]) -> None:
        """See WholeModel. Raises PeerLost."""
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
        """See WholeModel. Raises PeerLost."""
        with computing():
            super().backward(loss)

    @contextmanager
    def speaking(self) -> Iterator[Any]:
        """See WholeModel. Collective: it ends when no rank speaks any more."""
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
