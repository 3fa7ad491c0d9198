"""A language model that learns: its trainable parameters as one vector with Adam's moments, and what it says of tokens.

One vector makes the sum over ranks one call, the digest one hash, the checkpoint three arrays.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer import distributed, errors
from learnloop_trainer.language import lora, rows
from learnloop_trainer.neural.schedules import step_size

MOMENTS = {"first": "exp_avg", "second": "exp_avg_sq"}
"""Names of AdamW's moments in a checkpoint and in torch."""
Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Scores:
    """A model's figures of the n sampled tokens of a batch; all float32 [n].

    Attributes:
        log_prob: of each token, at the temperature it was drawn with.
        entropy: of the distribution it was drawn from; no gradient goes through it unless it was asked for.
        value: of the state it was drawn in, by the value head; None without one.
    """

    log_prob: torch.Tensor
    entropy: torch.Tensor
    value: torch.Tensor | None


class LanguageNetwork:
    """A causal language model of the transformers library, whole or frozen under an adapter."""

    def __init__(
        self,
        model: Any,
        adapters: Mapping[str, Any] | None = None,
        *,
        value_head: bool = False,
        reference: Any = None,
        bfloat16: bool = False,
    ) -> None:
        """`adapters` None: all weights learn. `reference`: the frozen base where all weights learn, for its opinion.
        With `bfloat16` the layers compute in it; log-probabilities, the loss and the optimiser stay float32.
        """
        self.model, self.adapters, self.reference, self.bfloat16 = model, adapters, reference, bfloat16
        first = next(model.parameters())
        width = model.get_input_embeddings().weight.shape[1]
        self.value_head = nn.Linear(width, 1).to(first.device) if value_head else None
        if self.value_head is not None:
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)
        named = dict(model.named_parameters()) | {
            f"value_head.{name}": part
            for name, part in (self.value_head.named_parameters() if self.value_head is not None else ())
        }
        self.trainable = {name: part for name, part in named.items() if part.requires_grad}
        self.vector = torch.cat([part.detach().float().reshape(-1) for part in self.trainable.values()])
        self.gradient = torch.zeros_like(self.vector)
        self.vector.grad = self.gradient
        self._adam = torch.optim.AdamW([self.vector], fused=True)
        self._moments = {name: torch.zeros_like(self.vector) for name in MOMENTS.values()}
        self._updates = torch.zeros((), device=first.device)
        self._adam.state[self.vector] = {"step": self._updates, **self._moments}
        begin = 0
        for part in self.trainable.values():
            end = begin + part.numel()
            part.data = self.vector[begin:end].view(part.shape)
            part.grad = self.gradient[begin:end].view(part.shape)
            begin = end
        model.eval()  # no dropout: what is learned from is what was sampled

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def place(self, device: torch.device) -> None:
        """Move the model to where it speaks; what learns must be in `vector` again before a checkpoint."""
        for part in (self.model, self.value_head):
            if part is not None:
                part.to(device)

    def score(self, batch: rows.TokenBatch, *, entropy_gradient: bool = False) -> Scores:
        """Log-probabilities of the batch's sampled tokens, in float32 whatever the layers compute in."""
        return self._score(self.model, batch, entropy_gradient=entropy_gradient)

    def score_base(self, batch: rows.TokenBatch) -> torch.Tensor:
        """Log-probabilities [n] of the base model: the adapter switched off, or the frozen copy. No gradient.

        Raises RuntimeError where all weights learn and no copy was kept.
        """
        with torch.no_grad():
            if self.adapters is not None:
                with lora.switched_off(self.adapters):
                    return self._score(self.model, batch).log_prob
            if self.reference is None:
                raise RuntimeError("all weights learn and no reference was kept")
            return self._score(self.reference, batch).log_prob

    @torch.no_grad()
    def values(self, batch: rows.TokenBatch) -> torch.Tensor:
        """Values by the value head at each sampled token, float32 [n]; RuntimeError without one.

        The words' logits are not computed: of a small model they are a good part of the work.
        """
        if self.value_head is None:
            raise RuntimeError("the network has no value head")
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            hidden = _hidden(self.model, batch)
        return self.value_head(hidden.float()).squeeze(1)  # type: ignore[no-any-return]

    def answer_scores(self, batch: rows.TokenBatch) -> torch.Tensor:
        """Scores by the value head of each whole answer, at the last token the model drew, float32 [members].

        Members have one sampled token at least. Raises RuntimeError without a value head.
        """
        if self.value_head is None:
            raise RuntimeError("the network has no value head")
        last = torch.bincount(batch.episode, minlength=len(batch.members)).cumsum(0) - 1
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            output = self.model.base_model(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False)
        hidden = output.last_hidden_state[batch.row[last], batch.column[last]]
        return self.value_head(hidden.float()).squeeze(1)  # type: ignore[no-any-return]

    def _score(self, model: Any, batch: rows.TokenBatch, *, entropy_gradient: bool = False) -> Scores:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            hidden, logits = read_tokens(model, batch, hidden=self.value_head is not None)
        scaled = logits.float() / batch.temperature.unsqueeze(1)
        spread = torch.log_softmax(scaled, dim=1)
        chosen = batch.ids[batch.row, batch.column].unsqueeze(1)
        log_prob = spread.gather(1, chosen).squeeze(1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(spread.exp() * spread).sum(1)
        value = None
        if self.value_head is not None and hidden is not None:
            value = self.value_head(hidden.float()).squeeze(1)
        return Scores(log_prob, entropy, value)

    @contextmanager
    def sampling(self) -> Iterator[Any]:
        """The model as it speaks now, quickest to sample from."""
        narrow = torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)
        with torch.no_grad(), narrow:
            if self.adapters is None or not lora.can_be_added(next(self.model.parameters()).dtype):
                yield self.model
                return
            with lora.merged(self.adapters):
                yield self.model

    def step(self, rate: float, max_norm: float, decay: float = 0.0) -> float:
        """AdamW on the summed gradient, which is then 0; returns its norm."""
        norm = torch.nn.utils.clip_grad_norm_([self.vector], max_norm)
        self._adam.param_groups[0].update(lr=rate, weight_decay=decay)
        self._adam.step()
        self.gradient.zero_()
        return float(norm)

    def digest(self) -> str:
        return hashlib.sha256(self.vector.detach().cpu().numpy().tobytes()).hexdigest()

    def arrays(self) -> Arrays:
        with torch.no_grad():
            return {name: part.float().cpu().numpy() for name, part in self.model.named_parameters()}

    def put(self, name: str, array: NDArray[np.generic]) -> None:
        """Set a trainable weight; raises ValueError where it has another shape."""
        part = self.trainable[name]
        if tuple(part.shape) != array.shape:
            raise ValueError(f"{name} has shape {array.shape}, {tuple(part.shape)} was expected")
        with torch.no_grad():
            part.copy_(torch.from_numpy(np.array(array, dtype=np.float32)))

    def state(self) -> Arrays:
        state: Arrays = {name: array.detach().cpu().numpy() for name, array in self._saved().items()}
        return state | {"updates": np.asarray([int(self._updates)], dtype=np.int64)}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from a saved state; raises ValueError when it is another network's."""
        for name, own in self._saved().items():
            if state[name].shape != tuple(own.shape):
                raise ValueError(f"{name} has shape {state[name].shape}, {tuple(own.shape)} was expected")
            own.copy_(torch.from_numpy(np.array(state[name], dtype=np.float32)))
        self._updates.fill_(int(state["updates"][0]))
        self.gradient.zero_()

    def _saved(self) -> dict[str, torch.Tensor]:
        return {"vector": self.vector} | {name: self._moments[own] for name, own in MOMENTS.items()}


def _hidden(model: Any, batch: rows.TokenBatch) -> torch.Tensor:
    """The last layer's output at the token before each sampled one: [n, width]."""
    output = model.base_model(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False)
    return output.last_hidden_state[batch.row, batch.column - 1]  # type: ignore[no-any-return]


def read_tokens(
    model: Any, batch: rows.TokenBatch, *, hidden: bool = False
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The last layer's output [n, width], with `hidden`, and the logits [n, words] before each sampled token.

    The model's own forward makes the logits: many families scale or cap what their head returns.
    """
    columns = torch.unique(batch.column - 1)
    output = model(
        input_ids=batch.ids,
        attention_mask=batch.attention,
        use_cache=False,
        output_hidden_states=hidden,
        logits_to_keep=columns,
    )
    logits = output.logits[batch.row, torch.searchsorted(columns, batch.column - 1)]
    return (output.hidden_states[-1][batch.row, batch.column - 1] if hidden else None), logits


class Lessons(Protocol):
    """Source of what is learned from. Collective: all ranks ask in the same order.

    Rewarded algorithms ask for `episodes` of a round, demonstrations come from `every`, preferences from `pairs`.
    """

    def state(self) -> Arrays:
        """The record, so that what arrives later cannot change a run that was interrupted."""

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Take the record up again."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The run as an algorithm for language models sees it."""

    network: LanguageNetwork
    experience: Any  # Lessons with the method that the algorithm asks for
    group: distributed.Group
    seed: int
    total_steps: int


@dataclass(frozen=True, slots=True)
class Round:
    """Result of one call of `iterate`, over all ranks: the latest returns, and points of curves."""

    returns: Sequence[float]
    curves: Mapping[str, float]


class LanguageLearner:
    """An algorithm with its state. All ranks call the same methods in the same order."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self.parameters, self.setting, self.network, self.step = parameters, setting, setting.network, 0

    def iterate(self) -> Round:
        raise NotImplementedError

    def shared(self) -> Arrays:
        """State, equal on all ranks: weights, optimiser, counters, record."""
        record: Arrays = self.setting.experience.state()
        return self.network.state() | {"step": np.asarray([self.step], dtype=np.int64)} | record

    def restore(self, shared: Mapping[str, NDArray[np.generic]]) -> None:
        """Take it up again; raises KeyError or ValueError when it belongs to another network."""
        self.network.restore(shared)
        self.step = int(shared["step"][0])
        self.setting.experience.restore(shared)


class Sums:
    """Named sums over this rank's tokens or episodes, to become means over all ranks in one exchange."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}

    def add(self, name: str, total: float | torch.Tensor, count: float) -> None:
        sums = self._sums.setdefault(name, [0.0, 0.0])
        sums[0] += float(total)
        sums[1] += count

    def means(self, group: distributed.Group, names: Sequence[str]) -> dict[str, float]:
        """Collective: the means; a name without anything counted is left out."""
        flat = [number for name in names for number in self._sums.get(name, [0.0, 0.0])]
        totals = group.sum(flat)
        pairs = zip(names, totals[::2], totals[1::2], strict=True)
        return {name: total / count for name, total, count in pairs if count}


@dataclass(slots=True)
class Stepper:
    """Takes optimiser steps that are the same on all ranks."""

    parameters: Parameters
    setting: Setting
    norms: list[float] = field(default_factory=list)

    def step(self, done: int) -> None:
        """Add up the ranks' gradients and take one step; raises NumericError for a NaN. `done`: of total_steps."""
        network = self.setting.network
        self.setting.group.add_up(network.gradient)
        rate = step_size(self.parameters, self.parameters.learning_rate, done / self.setting.total_steps)
        norm = network.step(rate, self.parameters.max_gradient_norm, self.parameters.weight_decay)
        if not np.isfinite(norm):
            raise errors.NumericError(
                f"loss is not finite at step {done}; lower the learning rate or the size of the rewards"
            )
        self.norms.append(norm)


def token_weights(episodes: Sequence[rows.Episode], total: float) -> list[float]:
    """1 / (sampled tokens x episodes of the update), for each episode: every rollout counts the same."""
    return [1.0 / (max(1, episode.sampled) * total) for episode in episodes]


def spread(values: Iterable[float], members: Sequence[int], owner: torch.Tensor) -> torch.Tensor:
    """A number of each episode, at each of the batch's tokens; `owner` [n] as Batch.episode."""
    numbers = list(values)
    picked = torch.tensor([numbers[member] for member in members], dtype=torch.float32)
    return picked.to(owner.device)[owner]


Maker = Callable[[Any, Setting], LanguageLearner]
