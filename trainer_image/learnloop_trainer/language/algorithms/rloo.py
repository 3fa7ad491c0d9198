"""REINFORCE leave-one-out: the other episodes about the same task are the baseline.

Ahmadian et al. (2024), "Back to basics", arXiv 2402.14740; Kool et al. (2019). With K episodes of a task:

    A_i = R_i - 1/(K-1) sum_{j != i} R_j,    L = -sum w sg(min(rho, cap)) A l

Deviations, all deliberate:
- The divergence from the base model is a loss of its own (losses.kl_penalty), not part of the reward: its gradient is
  the same on-policy, and the reward in the curves stays what the world gave.
- Tokens are weighed by rollout, not summed: a long conversation does not count more than a short one.
- Importance weights, capped, correct what another policy drew; on-policy they are 1.
"""

from collections.abc import Sequence

import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer.language import losses
from learnloop_trainer.language.algorithms.traits import LanguageTraits, register
from learnloop_trainer.language.learning import Setting
from learnloop_trainer.language.losses import leave_one_out
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
    del parameters, setting, values
    return throughout(episodes, leave_one_out(*rewards(episodes)))


def loss(parameters: Parameters, scores: Scores, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    found = losses.policy_gradient(
        scores.log_prob, tokens.behaviour, tokens.advantage, tokens.weight, parameters.ratio_cap
    )
    beyond = losses.ratio(scores.log_prob.detach(), tokens.behaviour) > parameters.ratio_cap
    return found, found.new_zeros(()), beyond.to(torch.float32)


def learner(parameters: Parameters, setting: Setting) -> PolicyGradient:
    """A fresh learner at step 0."""
    return PolicyGradient(parameters, setting, Objective(judge, loss))


register(LanguageTraits("rloo", learner))
