"""Checks that a model gives a token one probability, whether it is trained on, sampled, padded or alone.

Families of the transformers library differ in which arguments they take and honour: a bidirectional one sees the
future, some ignore padding. Training such a model would silently learn from wrong ratios.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from learnloop_trainer.language.batches import make
from learnloop_trainer.language.network import read_tokens
from learnloop_trainer.language.prefix_cache import PrefixCache
from learnloop_trainer.language.rows import Episode, Row

LENGTHS, PROMPT = (12, 10, 5), 3
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5}
"""Of a log-probability; a bfloat16 has 8 bits."""


@torch.no_grad()
def unfaithful(model: Any, words: int) -> str:
    """Why the model's log-probabilities depend on how it is called; "" where they do not."""
    device = next(model.parameters()).device
    draws = torch.Generator().manual_seed(0)
    texts = [torch.randint(words, (length,), generator=draws).tolist() for length in LENGTHS]
    try:
        alone = [_spread(model(input_ids=torch.tensor([text], device=device)).logits[0]) for text in texts]
        trained = _trained(model, texts, device)
        sampled = _sampled(model, texts)
    except Exception as error:  # architectures are foreign code and raise what they like
        return " ".join(f"does not take padded batches or a cache ({type(error).__name__}: {error})".split())[:200]
    wanted = torch.cat(
        [spread[PROMPT - 1 : -1].gather(1, _after(text, device)) for spread, text in zip(alone, texts, strict=True)]
    )
    spoken = torch.stack([spread[-3 + place] for place in (0, 1) for spread in alone])
    limit = TOLERANCE.get(model.dtype, 0.5)
    if not (trained - wanted.squeeze(1)).abs().max() < limit:
        return "gives a token another probability in a padded batch than alone"
    if not (sampled - spoken).abs().max() < limit:
        return "gives a token another probability while it speaks than when it reads the whole text"
    return ""


def _spread(logits: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(logits.float(), dim=-1)


def _after(text: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(text[PROMPT:], device=device).unsqueeze(1)


def _trained(model: Any, texts: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """Log-probabilities of all tokens after the prompt, as training computes them."""
    rows = [
        Row(
            np.asarray(text, dtype=np.int64),
            np.arange(len(text)) >= PROMPT,
            np.zeros(len(text), dtype=np.float32),
            np.ones(len(text), dtype=np.float32),
        )
        for text in texts
    ]
    batch = make([Episode([row], 0.0, 0) for row in rows], range(len(rows)), device)
    spread = _spread(read_tokens(model, batch)[1])
    return spread.gather(1, batch.ids[batch.row, batch.column].unsqueeze(1)).squeeze(1)


def _sampled(model: Any, texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Distributions of the last token but one and the last one, as sampling computes them."""
    reading = PrefixCache(model).read([text[:-2] for text in texts])
    first = _spread(reading.logits)
    token = torch.tensor([[text[-2]] for text in texts], device=reading.mask.device)
    reading.read(model, token, torch.ones_like(token))
    return torch.cat([first, _spread(reading.logits)])
