"""Group-relative policy optimisation: advantages in units of the group's deviation, and a clipped ratio.

Shao et al. (2024), "DeepSeekMath", arXiv 2402.03300; the wider upper clip: Yu et al. (2025), arXiv 2503.14476.

    A_i = (R_i - mean(R)) / (std(R) + 1e-4),    L = -sum w min(rho A, clip(rho, 1 - low, 1 + high) A)

Deviations, all deliberate:
- The ratio's denominator is the recorded log-probability, so it corrects the server's own error too.
- Where A < 0 the objective is bounded by `ratioCap` A (dual clip, arXiv 1912.09729).
- The divergence from the base model has the gradient of the reverse KL (losses.kl_penalty) in place of k3's.
- `scaleByDeviation: false` leaves the division out (arXiv 2503.20783).
"""

from collections.abc import Sequence

import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer.language import losses
from learnloop_trainer.language.algorithms.traits import LanguageTraits, register
from learnloop_trainer.language.learning import Setting
from learnloop_trainer.language.losses import standardised
from learnloop_trainer.language.network import Scores
from learnloop_trainer.language.policy_gradient import (
    Floats,
    Objective,
    PolicyGradient,
    TokenAdvantages,
    Tokens,
    rewards,
    throughout,
)
from learnloop_trainer.language.rows import Episode


def judge(
    parameters: Parameters, setting: Setting, episodes: Sequence[Episode], values: Sequence[Floats] | None
) -> list[TokenAdvantages]:
    del setting, values
    return throughout(episodes, standardised(*rewards(episodes), scale=parameters.scale_by_deviation))


def loss(parameters: Parameters, scores: Scores, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    found, clipped = losses.clipped_surrogate(
        scores.log_prob,
        tokens.behaviour,
        tokens.advantage,
        tokens.weight,
        parameters.clip_low,
        parameters.clip_high,
        max(parameters.ratio_cap, 1.0 + parameters.clip_high),
    )
    return found, found.new_zeros(()), clipped


def learner(parameters: Parameters, setting: Setting) -> PolicyGradient:
    """A fresh learner at step 0."""
    return PolicyGradient(parameters, setting, Objective(judge, loss))


register(LanguageTraits("grpo", learner))
