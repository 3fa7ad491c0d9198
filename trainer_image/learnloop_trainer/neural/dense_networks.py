"""Small dense networks whose parameters are views of one flat vector.

One vector makes the rest short and fast: the optimizer is five operations, gradients travel in one all-reduce, the
weights' digest is one hash, and a numpy actor reads the same memory. Biases and matrices keep their own names in the
checkpoint.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
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
        """What a numpy actor reads; call it after the last update, before acting."""
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
