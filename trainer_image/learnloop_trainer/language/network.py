"""A language model that learns: its trainable parameters as one vector with Adam's moments, and what it says of tokens.

One vector makes the sum over ranks one call, the digest one hash, the checkpoint three arrays. Weights that are divided
among ranks are not in it; checkpoint, digest and file are as if they were.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from learnloop_trainer.language import lora
from learnloop_trainer.language.divided_weights import FIRST, SECOND, Adam, DividedWeights, WholeModel, held, put_rows
from learnloop_trainer.language.rows import Episode, Row, TokenBatch, make

Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a model says of the n sampled tokens of a batch; all float32 [n].

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
        """`model`, `reference`: of the transformers library, or a DividedModel.

        `adapters` None: all weights learn. `reference`: the frozen base where all weights learn, for its opinion.
        With `bfloat16` the layers compute in it; log-probabilities, the loss and the optimiser stay float32.
        """
        self.held, self.adapters, self.bfloat16 = held(model), adapters, bfloat16
        self.model = model = self.held.model
        self.reference = held(reference) if reference is not None else None
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
        divided = [name for name, part in self.trainable.items() if hasattr(part, "to_local")]
        mine = {name: part for name, part in self.trainable.items() if name not in divided}
        self._divided: DividedWeights | None = None
        if divided and self.held.group is not None:
            self._divided = DividedWeights([self.trainable[name] for name in divided], self.held.group)
        flat = [part.detach().float().reshape(-1) for part in mine.values()]
        self.vector = torch.cat([*flat, torch.zeros(0, device=first.device)])
        self.gradient = torch.zeros_like(self.vector)
        self.vector.grad = self.gradient
        self._adam = Adam([self.vector])
        self.updates = 0
        begin = 0
        for part in mine.values():
            end = begin + part.numel()
            part.data = self.vector[begin:end].view(part.shape)
            part.grad = self.gradient[begin:end].view(part.shape)
            begin = end
        model.eval()  # no dropout: what is learned from is what was sampled

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.vector.device

    def score(self, batch: TokenBatch, *, entropy_gradient: bool = False) -> Scores:
        """Log-probabilities of the batch's sampled tokens, in float32 whatever the layers compute in."""
        return self._score(self.held, batch, entropy_gradient=entropy_gradient)

    def score_base(self, batch: TokenBatch) -> torch.Tensor:
        """Log-probabilities [n] of the base model: the adapter switched off, or the frozen copy. No gradient.

        Raises RuntimeError where all weights learn and no copy was kept.
        """
        with torch.no_grad():
            if self.adapters is not None:
                with lora.switched_off(self.adapters):
                    return self._score(self.held, batch).log_prob
            if self.reference is None:
                raise RuntimeError("all weights learn and no reference was kept")
            return self._score(self.reference, batch).log_prob

    @torch.no_grad()
    def values(self, batch: TokenBatch) -> torch.Tensor:
        """What the value head expects at each sampled token, float32 [n]; RuntimeError without one.

        The words' logits are not computed: of a small model they are a good part of the work.
        """
        if self.value_head is None:
            raise RuntimeError("the network has no value head")
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            hidden = self.held.run(lambda model: _hidden(model, batch))
        return self.value_head(hidden.float()).squeeze(1)  # type: ignore[no-any-return]

    def answer_scores(self, batch: TokenBatch) -> torch.Tensor:
        """What the value head says of each whole answer, at the last token the model drew, float32 [members].

        Members have one sampled token at least. Raises RuntimeError without a value head.
        """
        if self.value_head is None:
            raise RuntimeError("the network has no value head")
        last = torch.bincount(batch.episode, minlength=len(batch.members)).cumsum(0) - 1
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            seen = self.model.base_model(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False)
        hidden = seen.last_hidden_state[batch.row[last], batch.column[last]]
        return self.value_head(hidden.float()).squeeze(1)  # type: ignore[no-any-return]

    def _score(self, model: WholeModel, batch: TokenBatch, *, entropy_gradient: bool = False) -> Scores:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            valued = self.value_head is not None
            hidden, logits = model.run(lambda whole: read_tokens(whole, batch, hidden=valued))
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

    def learn_nothing(self) -> None:
        """Call the model forwards and backwards as for a batch that is learned from, with a gradient of 0."""
        self.held.backward(self.score(self._nothing()).log_prob.sum() * 0.0)

    def score_nothing(self) -> None:
        """Call the model as `score_base` does."""
        self.score_base(self._nothing())

    def value_nothing(self) -> None:
        """Call the model as `values` does."""
        self.values(self._nothing())

    def _nothing(self) -> TokenBatch:
        ids, zeros = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.float32)
        row = Row(ids, np.asarray([False, True]), zeros, np.ones(2, dtype=np.float32))
        return make([Episode([row], 0.0, 0)], [0], self.device)

    @contextmanager
    def sampling(self) -> Iterator[Any]:
        """The model as it speaks now, quickest to sample from."""
        narrow = torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)
        with torch.no_grad(), narrow, self.held.speaking() as model:
            whole = self.held.group is None  # a part of the weights cannot be merged
            if self.adapters is None or not (whole and lora.can_be_added(next(self.model.parameters()).dtype)):
                yield model
                return
            with lora.merged(self.adapters):
                yield model

    def step(self, rate: float, max_norm: float, decay: float = 0.0) -> float:
        """AdamW on the summed gradient, which is then 0; returns its norm. Collective where weights are divided."""
        with torch.no_grad():
            norm = float(torch.linalg.vector_norm(self.gradient))
            if self._divided is not None:
                norm = float(np.hypot(norm, np.sqrt(self._divided.squares())))
            scale = max_norm / norm if norm > max_norm else 1.0
            if norm > max_norm:
                self.gradient.mul_(scale)
            self.updates += 1
            self._adam.step(rate, decay, self.updates)
            self.gradient.zero_()
            if self._divided is not None:
                self._divided.step(scale, rate, decay, self.updates)
        return norm

    def digest(self) -> str:
        """SHA-256 of the trainable weights. Collective where they are divided."""
        found = hashlib.sha256()
        if self._divided is not None:
            self._divided.add_to(found)
        found.update(self.vector.detach().cpu().numpy().tobytes())
        return found.hexdigest()

    def arrays(self) -> Arrays:
        """All weights of the model by name, float32. Collective where they are divided; then on rank 0 alone."""
        if self._divided is None:
            with torch.no_grad():
                return {name: part.float().cpu().numpy() for name, part in self.model.named_parameters()}
        names = [name for name, part in self.trainable.items() if hasattr(part, "to_local")]
        return dict(zip(names, self._divided.arrays(), strict=False))

    def put(self, name: str, array: NDArray[np.generic]) -> None:
        """Set a trainable weight from the whole array; raises ValueError where it has another shape."""
        part = self.trainable[name]
        if tuple(part.shape) != array.shape:
            raise ValueError(f"{name} has shape {array.shape}, {tuple(part.shape)} was expected")
        with torch.no_grad():
            if hasattr(part, "to_local") and self.held.group is not None:
                put_rows(part.to_local(), array, self.held.group)
            else:
                part.copy_(torch.from_numpy(np.array(array, dtype=np.float32)))

    def state(self) -> Arrays:
        """What `restore` needs: weights and moments.

        Collective where weights are divided; then what rank 0 gets is whole, and that of the others is not.
        """
        state: Arrays = {name: array.detach().cpu().numpy() for name, array in self._saved().items()}
        if self._divided is not None:
            state = {name: np.concatenate([part, state[name]]) for name, part in self._divided.state().items()}
        return state | {"updates": np.asarray([self.updates], dtype=np.int64)}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from a saved state; raises ValueError when it is another network's."""
        given = {name: np.asarray(state[name], dtype=np.float32) for name in ("vector", "first", "second")}
        if self._divided is not None:
            count = len(self._divided)
            self._divided.restore(**{name: array[:count] for name, array in given.items()})
            given = {name: array[count:] for name, array in given.items()}
        for name, own in self._saved().items():
            if given[name].shape != tuple(own.shape):
                raise ValueError(f"{name} has shape {given[name].shape}, {tuple(own.shape)} was expected")
            own.copy_(torch.from_numpy(np.array(given[name])))
        self.updates = int(state["updates"][0])
        self.gradient.zero_()

    def _saved(self) -> dict[str, torch.Tensor]:
        (first,), (second,) = self._adam.moments(FIRST), self._adam.moments(SECOND)
        return {"vector": self.vector, "first": first, "second": second}


def _hidden(model: Any, batch: TokenBatch) -> torch.Tensor:
    """The last layer's output at the token before each sampled one: [n, width]."""
    seen = model.base_model(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False)
    return seen.last_hidden_state[batch.row, batch.column - 1]  # type: ignore[no-any-return]


def read_tokens(model: Any, batch: TokenBatch, *, hidden: bool = False) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The last layer's output [n, width], with `hidden`, and the logits [n, words] before each sampled token.

    The model's own forward makes the logits: many families scale or cap what their head returns.
    """
    columns = torch.unique(batch.column - 1)
    seen = model(
        input_ids=batch.ids,
        attention_mask=batch.attention,
        use_cache=False,
        output_hidden_states=hidden,
        logits_to_keep=columns,
    )
    logits = seen.logits[batch.row, torch.searchsorted(columns, batch.column - 1)]
    return (seen.hidden_states[-1][batch.row, batch.column - 1] if hidden else None), logits
