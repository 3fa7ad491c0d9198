"""Perceptrons of one shape side by side, with the backward pass written out.

For the small networks of reinforcement learning most of an update is not arithmetic but the bookkeeping of autograd and
the allocation of its results. Here all k networks go through one batched product per layer, every result has a
preallocated place, and gradients land in the network's flat gradient. The tests compare with autograd.

Samples are columns: a layer's input is [k, in + 1, n] with a last row of ones. Its parameters lie in the flat vector as
[k, in + 1, out], the biases as last row. So the product adds the biases, and one gives both gradients.

Because every tensor has its place, the calls of a pass are prepared once for each batch size, with their arguments,
and then only repeated: cutting the same views again took a quarter of an update of a small network.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from learnloop_trainer.neural.dense_networks import Network

MAX_SIZES = 64  # batch sizes whose places are kept; ranks see a few different ones per minibatch
_aten = torch.ops.aten
Calls = list[Callable[[], object]]


@dataclass(frozen=True, slots=True)
class _Activation:
    apply: Callable[[torch.Tensor], torch.Tensor]  # in place
    undo: Callable[[torch.Tensor, torch.Tensor], Callable[[], object]]  # (gradient, in place; output) prepared


_ACTIVATIONS = {
    "tanh": _Activation(torch.tanh_, lambda d, y: partial(_aten.tanh_backward.grad_input, d, y, grad_input=d)),
    "relu": _Activation(torch.relu_, lambda d, y: partial(_aten.threshold_backward.grad_input, d, y, 0, grad_input=d)),
}


@dataclass(frozen=True, slots=True)
class _Places:
    """Results for one batch size: the input [k, in + 1, n], of each layer [k, out, n], and their gradients."""

    input: torch.Tensor
    enter: torch.Tensor  # the input without the row of ones
    cuts: dict[tuple[int, ...], Sequence[torch.Tensor]]  # the same in parts of these sizes
    out: list[torch.Tensor]
    columns: list[torch.Tensor]  # the same with the row of ones, where another layer follows
    back: list[torch.Tensor]
    result: torch.Tensor  # [k, n, out] of the last layer
    incoming: torch.Tensor  # its gradient
    ahead: Calls  # the forward pass after the first layer's product
    behind: dict[tuple[int, bool], Calls]  # the backward pass of the first so many, with or without parameters


def neighbours(network: Network, vector: torch.Tensor, names: Sequence[str]) -> torch.Tensor:
    """Layers that lie one after another in `vector`, weights above biases, as one view [k, in + 1, out].

    Raises ValueError when they do not, or differ in shape.
    """
    sizes = {name: math.prod(shape) for name, shape in network.shapes.items()}
    order = list(sizes)
    parts = [f"{name}.{kind}" for name in names for kind in ("weight", "bias")]
    first = order.index(parts[0])
    rows, columns = network.shapes[parts[0]]
    unlike = {network.shapes[part] for part in parts[::2]} != {(rows, columns)}
    if unlike or order[first : first + len(parts)] != parts:
        raise ValueError(f"{', '.join(names)} are not neighbours of one shape")
    start = sum(sizes[name] for name in order[:first])
    shape = (len(names), rows + 1, columns)
    return vector[start : start + math.prod(shape)].view(shape)


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

        def views(flat: torch.Tensor) -> list[torch.Tensor]:
            return [neighbours(network, flat, [f"{name}.{layer}" for name in names]) for layer in layers]

        parameters = views(network.vector if vector is None else vector)
        self._weights = [layer[:, :-1] for layer in parameters]
        self._transposed = [layer.transpose(1, 2) for layer in parameters]
        self._gradients = views(network.gradient)
        self._activation, self._squash_last = _ACTIVATIONS[activation], squash_last
        self._places: dict[int, _Places] = {}
        self._results = self._at(0)
        self._input = self._results.input

    def _at(self, count: int) -> _Places:
        if (known := self._places.get(count)) is not None:
            return known
        if len(self._places) >= MAX_SIZES:
            self._places.clear()
        new = self._weights[0].new_ones
        shapes = [(len(weight), weight.shape[2] + 1, count) for weight in self._weights]
        columns = [new(shape) for shape in shapes]
        inputs = new((len(self._weights[0]), self._weights[0].shape[1] + 1, count))
        back = [new((nets, rows - 1, count)) for nets, rows, _ in shapes]
        out = [place[:, :-1] for place in columns]
        ahead = Calls()
        for layer, place in enumerate(out):
            if layer:
                ahead.append(partial(torch.bmm, self._transposed[layer], columns[layer - 1], out=place))
            if self._squashed(layer):
                ahead.append(partial(self._activation.apply, place))
        ends = (out[-1].transpose(1, 2), back[-1].transpose(1, 2))
        self._places[count] = _Places(inputs, inputs[:, :-1], {}, out, columns, back, *ends, ahead, {})
        return self._places[count]

    def _squashed(self, layer: int) -> bool:
        return layer < len(self._weights) - 1 or self._squash_last

    def _behind(self, count: int, parameters: bool) -> Calls:
        """The backward pass of `count` samples of the newest `forward`, without the first layer's own products."""
        results, key = self._results, (count, parameters)
        if key in results.behind:
            return results.behind[key]
        places, calls = self._at(count), Calls()
        for layer in range(len(self._weights) - 1, -1, -1):
            back = places.back[layer]
            if self._squashed(layer):
                calls.append(self._activation.undo(back, results.out[layer][..., :count]))
            if not layer:
                break
            if parameters:
                columns = results.columns[layer - 1][..., :count]
                calls.append(partial(torch.bmm, columns, back.transpose(1, 2), out=self._gradients[layer]))
            calls.append(partial(torch.bmm, self._weights[layer], back, out=places.back[layer - 1]))
        results.behind[key] = calls
        return calls

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        """Outputs [k, n, out] for inputs [n, in] shared by all, or [k, n, in]; several parts make one batch."""
        if len(parts) == 1:
            places = self._at(parts[0].shape[-2])
            places.enter.copy_(parts[0].mT)
            return self.through(places.input)
        sizes = tuple(part.shape[-2] for part in parts)
        places = self._at(sum(sizes))
        if sizes not in places.cuts:
            places.cuts[sizes] = places.enter.split_with_sizes(sizes, 2)
        for part, place in zip(parts, places.cuts[sizes], strict=True):
            place.copy_(part.mT)
        return self.through(places.input)

    def through(self, columns: torch.Tensor) -> torch.Tensor:
        """The same for inputs [k, in + 1, n] that are columns already, above a row of ones."""
        self._input, self._results = columns, self._at(columns.shape[2])
        torch.bmm(self._transposed[0], columns, out=self._results.out[0])
        for call in self._results.ahead:
            call()
        return self._results.result

    @property
    def entered(self) -> torch.Tensor:
        """The newest inputs [k, in + 1, n] for another stack's `through`."""
        return self._input

    @property
    def columns(self) -> torch.Tensor:
        """The newest outputs [k, out + 1, n] for another stack's `through`."""
        return self._results.columns[-1]

    def incoming(self, count: int) -> torch.Tensor:
        """Where to put the gradient of the outputs [k, n, out] before `backward`."""
        return self._at(count).incoming

    def backward(
        self, count: int, *, into: torch.Tensor | None = None, parameters: bool = True, rows: slice = slice(None)
    ) -> None:
        """Gradients of the first `count` inputs of the newest `forward`, from `incoming`.

        Those of the parameters replace what stood in the flat gradient; those of some of the inputs' numbers, `rows`,
        go `into` [k, n, rows].
        """
        for call in self._behind(count, parameters):
            call()
        back = self._at(count).back[0]
        if parameters:
            torch.bmm(self._input[..., :count], back.transpose(1, 2), out=self._gradients[0])
        if into is not None:
            torch.bmm(self._weights[0][:, rows], back, out=into.transpose(1, 2))
