"""One step of AdamW (Loshchilov & Hutter, arXiv 1711.05101), element by element: whole weights and parts move alike."""

import torch

BETAS = (0.9, 0.999)
EPSILON = 1e-8


def adam_step(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    rate: float,
    decay: float,
    updates: int,
) -> None:
    """Move `weight` and both moments in place; `updates`: how many steps there were, this one included."""
    first.lerp_(gradient, 1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    unbiased, spread = 1 - BETAS[0] ** updates, 1 - BETAS[1] ** updates
    if decay:
        weight.mul_(1 - rate * decay)
    weight.addcdiv_(first, (second / spread).sqrt_().add_(EPSILON), value=-rate / unbiased)
