"""Sampling in this process: many prompts at once, with the log-probability of every token drawn.

A token is the first whose cumulative probability exceeds a uniform number that belongs to (conversation, turn, place),
so one rank and many draw the same. Nothing is cut from the distribution: a nucleus would give ratios a bias that no
correction removes.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_trainer.language.prefix_cache import PrefixCache
from learnloop_trainer.language.rows import Sampled

Uniforms = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    """How to draw.

    Attributes:
        temperature: logits are divided by it; 0 takes the likeliest token.
        stops: ids that end a turn.
        most: tokens of a turn at most.
        context: tokens of a prompt and its answer at most.
    """

    temperature: float
    stops: Collection[int]
    most: int
    context: int


class Sampler:
    """Draws turns of conversations; see rollouts.Speaker. It holds for weights as they are now."""

    def __init__(self, model: Any) -> None:
        """What the model has read of a conversation stays read for its next turn."""
        self._read = PrefixCache(model)
        self._model = model

    @torch.no_grad()
    def __call__(
        self, prompts: Sequence[Sequence[int]], uniforms: Callable[[int], Uniforms], limits: Limits
    ) -> list[Sampled | None]:
        """One turn for each prompt; None where the prompt leaves no room in the context.

        `uniforms(place)` gives the numbers [prompts] in [0, 1) for the place-th token. Log-probabilities are those of
        the distribution drawn from, after the temperature; of the likeliest token (temperature 0) at temperature 1.
        """
        drawn: list[Sampled | None] = [None] * len(prompts)
        alive = np.asarray([at for at, prompt in enumerate(prompts) if len(prompt) < limits.context], dtype=np.int64)
        if not len(alive):
            return drawn
        reading = self._read.read([prompts[at] for at in alive])
        found: list[list[int]] = [[] for _ in prompts]
        chances: list[list[float]] = [[] for _ in prompts]
        heat = limits.temperature or 1.0
        stops = np.asarray(sorted(limits.stops), dtype=np.int64)
        for place in range(limits.most):
            spread = torch.log_softmax(reading.logits.float() / heat, dim=1)
            token = _draw(spread, uniforms(place)[alive]) if limits.temperature else spread.argmax(1)
            chance = spread.gather(1, token.unsqueeze(1)).squeeze(1)
            said = token.cpu().numpy()
            ended = np.isin(said, stops)
            speaking = ~ended
            for row, (at, word, log_prob) in enumerate(
                zip(alive.tolist(), said.tolist(), chance.tolist(), strict=True)
            ):
                found[at].append(word)
                chances[at].append(log_prob)
                if len(prompts[at]) + len(found[at]) >= limits.context or place + 1 == limits.most:
                    speaking[row] = False
                if not speaking[row]:
                    drawn[at] = Sampled(prompts[at], found[at], chances[at], heat, bool(ended[row]))
            complete = np.flatnonzero(ended).tolist()
            read = [(int(alive[row]), [*prompts[alive[row]], *found[alive[row]][:-1]]) for row in complete]
            self._read.keep(reading, complete, read)
            if not speaking.any():
                break
            kept = torch.from_numpy(np.flatnonzero(speaking)).to(token.device)
            if len(kept) < len(alive):
                reading.select(kept)
                token, alive = token[kept], alive[speaking]
            tokens = token.unsqueeze(1)
            reading.read(self._model, tokens, torch.ones_like(tokens))
        return drawn


def _draw(spread: torch.Tensor, uniform: Uniforms) -> torch.Tensor:
    """The first token whose cumulative probability exceeds the number; spread [n, words], uniform [n]."""
    sums = spread.double().exp().cumsum(1)
    wanted = torch.from_numpy(uniform).to(spread.device).unsqueeze(1) * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True).squeeze(1).clamp_max(spread.shape[1] - 1)
