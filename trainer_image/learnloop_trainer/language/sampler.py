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


@torch.no_grad()
def sample(
    model: Any, prompts: Sequence[Sequence[int]], uniforms: Callable[[int], Uniforms], limits: Limits
) -> list[Sampled | None]:
    """One turn for each prompt; None where the prompt leaves no room in the context.

    `uniforms(place)` gives the numbers [prompts] in [0, 1) for the place-th token. Log-probabilities are those of the
    distribution drawn from, after the temperature; of the likeliest token (temperature 0) at temperature 1.
    """
    drawn: list[Sampled | None] = [None] * len(prompts)
    alive = np.asarray([at for at, prompt in enumerate(prompts) if len(prompt) < limits.context], dtype=np.int64)
    if not len(alive):
        return drawn
    device = next(model.parameters()).device
    longest = max(len(prompts[at]) for at in alive)
    ids = np.zeros((len(alive), longest), dtype=np.int64)
    attention = np.zeros((len(alive), longest), dtype=np.int64)
    for place, at in enumerate(alive):
        ids[place, longest - len(prompts[at]) :] = prompts[at]
        attention[place, longest - len(prompts[at]) :] = 1
    mask, tokens = torch.from_numpy(attention).to(device), torch.from_numpy(ids).to(device)
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    found: list[list[int]] = [[] for _ in prompts]
    chances: list[list[float]] = [[] for _ in prompts]
    heat = limits.temperature or 1.0
    stops = np.asarray(sorted(limits.stops), dtype=np.int64)
    cache: Any = None
    for place in range(limits.most):
        out = model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = out.past_key_values
        spread = torch.log_softmax(out.logits[:, -1].float() / heat, dim=1)
        token = _draw(spread, uniforms(place)[alive]) if limits.temperature else spread.argmax(1)
        chance = spread.gather(1, token.unsqueeze(1)).squeeze(1)
        speaking = np.ones(len(alive), dtype=np.bool_)
        said = token.cpu().numpy()
        ended = np.isin(said, stops)
        for row, (at, word, log_prob) in enumerate(zip(alive.tolist(), said.tolist(), chance.tolist(), strict=True)):
            found[at].append(word)
            chances[at].append(log_prob)
            full = len(prompts[at]) + len(found[at]) >= limits.context or place + 1 == limits.most
            if ended[row] or full:
                speaking[row] = False
                drawn[at] = Sampled(prompts[at], found[at], chances[at], heat, bool(ended[row]))
        if not speaking.any():
            return drawn
        kept = np.flatnonzero(speaking)
        tokens, positions = token.unsqueeze(1), positions[:, -1:] + 1
        if len(kept) < len(alive):
            keep = torch.from_numpy(kept).to(device)
            tokens, positions, mask = tokens[keep], positions[keep], mask[keep]
            cache.batch_select_indices(keep)
            alive = alive[kept]
        mask = torch.cat((mask, mask.new_ones(len(mask), 1)), dim=1)
    return drawn


def _draw(spread: torch.Tensor, uniform: Uniforms) -> torch.Tensor:
    """The first token whose cumulative probability exceeds the number; spread [n, words], uniform [n]."""
    sums = spread.double().exp().cumsum(1)
    wanted = torch.from_numpy(uniform).to(spread.device).unsqueeze(1) * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True).squeeze(1).clamp_max(spread.shape[1] - 1)
