"""AdamW (Loshchilov & Hutter, arXiv 1711.05101) of PyTorch, with moments from the beginning and by name."""

from collections.abc import Sequence

import torch

FIRST, SECOND, UPDATES = "exp_avg", "exp_avg_sq", "step"


class Adam:
    """An optimiser of tensors that carry their gradient; its moments are 0 before the first step."""

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        self.weights = list(weights)
        self._adam = torch.optim.AdamW(self.weights, fused=True)
        for weight in self.weights:
            self._adam.state[weight] = {
                UPDATES: torch.zeros((), device=weight.device),
                FIRST: torch.zeros_like(weight),
                SECOND: torch.zeros_like(weight),
            }

    def moments(self, name: str) -> list[torch.Tensor]:
        """FIRST or SECOND of each weight."""
        return [self._adam.state[weight][name] for weight in self.weights]

    @torch.no_grad()
    def step(self, rate: float, decay: float, updates: int) -> None:
        """Move the weights; `updates`: how many steps there were, this one included."""
        for weight in self.weights:
            self._adam.state[weight][UPDATES].fill_(updates - 1)
        self._adam.param_groups[0].update(lr=rate, weight_decay=decay)
        self._adam.step()
