"""Perceptrons of one shape side by side, with the backward pass written out.

For the small networks of reinforcement learning most of an update is not arithmetic but the bookkeeping of autograd and
the allocation of its results. Here all k networks go through one batched product per layer, every result has a
preallocated place, and gradients land in the network's flat gradient. The tests compare with autograd.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from learnloop_trainer.networks import Network

MAX_SIZES = 64  # batch sizes whose places are kept; ranks see a few different ones per minibatch
_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class _Activation:
    apply: Callable[[torch.Tensor], torch.Tensor]  # in place
    undo: Callable[[torch.Tensor, torch.Tensor], object]  # (gradient, in place; output)


_ACTIVATIONS = {
    "tanh": _Activation(torch.tanh_, lambda d, y: _aten.tanh_backward.grad_input(d, y, grad_input=d)),
    "relu": _Activation(torch.relu_, lambda d, y: _aten.threshold_backward.grad_input(d, y, 0, grad_input=d)),
}


@dataclass(frozen=True, slots=True)
class _Places:
    """Results for one batch size: of each layer [k, n, out], and of the gradients that come back."""

    out: list[torch.Tensor]
    back: list[torch.Tensor]


def neighbours(network: Network, vector: torch.Tensor, names: Sequence[str]) -> torch.Tensor:
    """Parameters that lie one after another in `vector` as one view [k, ...]; raises ValueError when they do not."""
    sizes = {name: math.prod(shape) for name, shape in network.shapes.items()}
    order = list(sizes)
    first = order.index(names[0])
    if order[first : first + len(names)] != list(names) or len({network.shapes[name] for name in names}) > 1:
        raise ValueError(f"{', '.join(names)} are not neighbours of one shape")
    start = sum(sizes[name] for name in order[:first])
    length = sizes[names[0]] * len(names)
    return vector[start : start + length].view(len(names), *network.shapes[names[0]])


class Stack:
    """The perceptrons `names` of a network, or some layers of them. Call it within torch.inference_mode.

    A result is overwritten by the next call with a batch of the same size.
    """

    def __init__(
        self,
        network: Network,
        names: Sequence[str],
        activation: str,
        layers: range,
        *,
        squash_last: bool = False,
        vector: torch.Tensor | None = None,
    ) -> None:
        """`vector`: other parameters of the same layout, of a target network for one; they get no gradient."""
        values = network.vector if vector is None else vector

        def views(flat: torch.Tensor, kind: str) -> list[torch.Tensor]:
            return [neighbours(network, flat, [f"{name}.{layer}.{kind}" for name in names]) for layer in layers]

        self.weights, self._biases = views(values, "weight"), [bias.unsqueeze(1) for bias in views(values, "bias")]
        self._weight_gradients = views(network.gradient, "weight")
        self._bias_gradients = [bias.unsqueeze(1) for bias in views(network.gradient, "bias")]
        self._transposed = [weight.transpose(1, 2) for weight in self.weights]
        self._activation, self._squash_last = _ACTIVATIONS[activation], squash_last
        self._places: dict[int, _Places] = {}
        self._input, self._results = values.new_empty(0), self._at(0).out

    def _at(self, count: int) -> _Places:
        if count not in self._places:
            if len(self._places) >= MAX_SIZES:
                self._places.clear()
            shapes = [(len(weight), count, weight.shape[2]) for weight in self.weights]
            new = self.weights[0].new_empty
            self._places[count] = _Places([new(shape) for shape in shapes], [new(shape) for shape in shapes])
        return self._places[count]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs [k, n, out] for inputs [n, in] shared by all, or [k, n, in]."""
        count, last = x.shape[-2], len(self.weights) - 1
        flow = self._input = x if x.dim() == 3 else x.expand(len(self.weights[0]), count, x.shape[-1])
        self._results = self._at(count).out
        for layer, place in enumerate(self._results):
            torch.baddbmm(self._biases[layer], flow, self.weights[layer], out=place)
            flow = self._activation.apply(place) if layer < last or self._squash_last else place
        return flow

    def incoming(self, count: int) -> torch.Tensor:
        """Where to put the gradient of the outputs [k, n, out] before `backward`."""
        return self._at(count).back[-1]

    def backward(
        self, count: int, *, into: torch.Tensor | None = None, parameters: bool = True, columns: slice = slice(None)
    ) -> None:
        """Gradients of the first `count` inputs of the newest `forward`, from `incoming`.

        Those of the parameters replace what stood in the flat gradient; those of the inputs' `columns`
        go `into` [k, n, columns].
        """
        backs, results, inputs = self._at(count).back, self._results, self._input
        if inputs.shape[1] > count:
            results, inputs = [result[:, :count] for result in results], inputs[:, :count]
        for layer in range(len(self.weights) - 1, -1, -1):
            back = backs[layer]
            if layer < len(self.weights) - 1 or self._squash_last:
                self._activation.undo(back, results[layer])
            if parameters:
                below = results[layer - 1] if layer else inputs
                torch.bmm(below.transpose(1, 2), back, out=self._weight_gradients[layer])
                torch.sum(back, 1, keepdim=True, out=self._bias_gradients[layer])
            if layer:
                torch.bmm(back, self._transposed[layer], out=backs[layer - 1])
            elif into is not None:
                torch.bmm(back, self._transposed[0][:, :, columns], out=into)
