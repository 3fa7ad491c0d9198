"""Networks of dense layers, one at a time and many together."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments.randomness import Purpose, generator

Floats = NDArray[np.float32]
Squash = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[Floats], Floats]]
ACTIVATIONS: dict[str, Squash] = {
    "tanh": (torch.tanh, lambda x: np.tanh(x, out=x)),
    "relu": (torch.relu, lambda x: np.maximum(x, np.float32(0), out=x)),
}


def dense(name: str, sizes: Sequence[int], last_gain: float, seed: int, stream: int) -> dict[str, Floats]:
    """Initial weights [in, out] and biases [out] of one multi-layer perceptron.

    Orthogonal (Saxe et al., 2014, arXiv 1312.6120), gain sqrt(2) in hidden layers, `last_gain` in the last. Drawn with
    numpy, so that they do not depend on the version of torch.
    """
    arrays: dict[str, Floats] = {}
    for layer, (rows, columns) in enumerate(pairwise(sizes)):
        random = generator(Purpose.WEIGHTS, seed, stream, layer)
        orthogonal, triangle = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
        orthogonal *= np.sign(np.diag(triangle))
        matrix = orthogonal if rows >= columns else orthogonal.T
        gain = last_gain if layer == len(sizes) - 2 else math.sqrt(2.0)
        arrays[f"{name}.{layer}.weight"] = np.asarray(matrix * gain, dtype=np.float32)
        arrays[f"{name}.{layer}.bias"] = np.zeros(columns, dtype=np.float32)
    return arrays


def side_by_side(*perceptrons: Mapping[str, Floats]) -> dict[str, Floats]:
    """Perceptrons of as many layers, laid out layer by layer, so that equal shapes become neighbours in one vector."""
    items = [list(perceptron.items()) for perceptron in perceptrons]
    layers = range(0, max(map(len, items)), 2)  # a layer's weights are followed by its biases
    return dict(pair for layer in layers for perceptron in items for pair in perceptron[layer : layer + 2])


def forward(parameters: Mapping[str, torch.Tensor], name: str, activation: str, x: torch.Tensor) -> torch.Tensor:
    """The perceptron `name` on a batch [n, in] in torch; returns [n, out]."""
    squash, layer = ACTIVATIONS[activation][0], 0
    while f"{name}.{layer}.weight" in parameters:
        x = torch.addmm(
            parameters[f"{name}.{layer}.bias"], squash(x) if layer else x, parameters[f"{name}.{layer}.weight"]
        )
        layer += 1
    return x


def forward_numpy(parameters: Mapping[str, Floats], name: str, activation: str, x: Floats) -> Floats:
    """The same in numpy: three times faster than torch for the small batches an actor sees."""
    squash, layer = ACTIVATIONS[activation][1], 0
    while (weight := parameters.get(f"{name}.{layer}.weight")) is not None:
        x = (squash(x) if layer else x) @ weight
        x += parameters[f"{name}.{layer}.bias"]
        layer += 1
    return x


class Network:
    """Named parameters over one flat vector, with their gradients over another, and Adam."""

    def __init__(self, arrays: Mapping[str, Floats], device: torch.device) -> None:
        """Lay the arrays out one after another on `device`."""
        self.shapes = {name: array.shape for name, array in arrays.items()}
        self.vector = torch.from_numpy(np.concatenate([array.ravel() for array in arrays.values()])).to(device)
        self.gradient = torch.zeros_like(self.vector)
        self.gradient_norm: torch.Tensor | None = None  # of the newest update, before it was clipped
        self.mean, self.square = torch.zeros_like(self.vector), torch.zeros_like(self.vector)
        self.updates = 0
        self.warm = False  # training began from a policy that was trained before
        self.fixed: dict[str, Floats] = {}  # constants that go with the parameters into the exported policy
        self._count = torch.zeros((), device=device)  # the same number, where the fused kernel wants it
        self._adam = partial(
            torch._fused_adam_,
            [self.vector],
            [self.gradient],
            [self.mean],
            [self.square],
            [],
            [self._count],
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )
        self.leaves = {name: view.detach().requires_grad_() for name, view in self.views(self.vector).items()}
        for name, view in self.views(self.gradient).items():
            self.leaves[name].grad = view  # backward then adds into the flat gradient, as DDP's bucket views do
        self._actor = self.arrays()

    def views(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """A flat vector cut into the named shapes, without copying."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = torch.split(vector, sizes)
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def arrays(self) -> dict[str, Floats]:
        """The parameters in numpy: views on the CPU, copies from a GPU."""
        return {name: view.cpu().numpy() for name, view in self.views(self.vector).items()}

    def exported(self) -> dict[str, Floats]:
        """Parameters and constants: all that the exported policy is made of."""
        return self.arrays() | self.fixed

    def actor(self) -> dict[str, Floats]:
        """Weights that a numpy actor reads; call it after the last update, before acting."""
        if self.vector.device.type != "cpu":
            self._actor = self.arrays()
        return self._actor

    def adam(self, rate: float, max_norm: float, epsilon: float = 1e-5, *, clear: bool = True) -> None:
        """One step of Adam (Kingma & Ba, 2015, arXiv 1412.6980) on `gradient`, its norm clipped, then cleared.

        One fused kernel, the one behind torch.optim.Adam(fused=True). Without `clear` the gradient stays, for those who
        write the next one in its place.
        """
        excess = None
        if max_norm < math.inf:
            # A tensor, not a number: reading it would make a GPU wait. NaN passes through and is found later.
            self.gradient_norm = norm = torch.linalg.vector_norm(self.gradient)
            excess = norm.div(max_norm).clamp_min_(1.0)
        self.updates += 1
        self._count.add_(1)
        self._adam(lr=rate, eps=epsilon, grad_scale=excess)
        if clear:
            self.gradient.zero_()

    def digest(self) -> str:
        """SHA-256 of all parameters; equal digests mean bit-equal weights."""
        return hashlib.sha256(self.vector.cpu().numpy().tobytes()).hexdigest()

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Parameters by name, optimizer moments flat, number of updates. Copies."""
        state: dict[str, NDArray[np.generic]] = {name: array.copy() for name, array in self.arrays().items()}
        state["adam.mean"] = self.mean.cpu().numpy().copy()
        state["adam.square"] = self.square.cpu().numpy().copy()
        state["adam.updates"] = np.asarray([self.updates], dtype=np.int64)
        state["warm"] = np.asarray([self.warm])
        return state

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Take up a saved state; raises KeyError or ValueError when the shapes differ."""
        for name, shape in self.shapes.items():
            if state[name].shape != shape:
                raise ValueError(f"{name} has shape {state[name].shape}, this network's is {shape}")
        flat = np.concatenate([np.asarray(state[name], dtype=np.float32).ravel() for name in self.shapes])
        with torch.no_grad():
            self.vector.copy_(torch.from_numpy(flat))
            self.mean.copy_(torch.from_numpy(np.array(state["adam.mean"], dtype=np.float32)))
            self.square.copy_(torch.from_numpy(np.array(state["adam.square"], dtype=np.float32)))
        self.updates, self.warm = int(state["adam.updates"][0]), bool(state["warm"][0])
        self._count.fill_(self.updates)
        self._actor = self.arrays()


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
        if (places := self._places.get(count)) is not None:
            return places
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
        """Buffer for the gradient of the outputs [k, n, out] before `backward`."""
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
