"""Proximal policy optimisation over the tokens of a language model, with a value head on its last hidden state.

Schulman et al. (2017), arXiv 1707.06347; over tokens: Ouyang et al. (2022), arXiv 2203.02155. The reward comes with the
last sampled token, advantages by GAE over sampled tokens alone, then less their mean and by their deviation over all
ranks:

    L = -sum w min(rho A, clip(rho, 1 ± eps) A) + c_v sum w max((v - R)^2, (clip(v) - R)^2) / 2

Deviations, all deliberate:
- The ratio's denominator is the recorded log-probability, and where A < 0 the objective is bounded by `ratioCap` A.
- Value head and policy share the model; the head begins at 0.
- Tokens are weighed by rollout, in the value loss too.
"""

from collections.abc import Sequence

import numpy as np
import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer.language import losses
from learnloop_trainer.language.algorithms.traits import LanguageTraits, register
from learnloop_trainer.language.learning import Setting
from learnloop_trainer.language.losses import token_advantages
from learnloop_trainer.language.network import Scores
from learnloop_trainer.language.policy_gradient import Floats, Objective, PolicyGradient, TokenAdvantages, Tokens
from learnloop_trainer.language.rows import Episode


def judge(
    parameters: Parameters, setting: Setting, episodes: Sequence[Episode], values: Sequence[Floats] | None
) -> list[TokenAdvantages]:
    """Collective: mean and deviation of the advantages are those of all ranks."""
    assert values is not None  # the objective has a value head
    found = [
        token_advantages(value, episode.reward, parameters.discount, parameters.gae_lambda)
        for episode, value in zip(episodes, values, strict=True)
    ]
    every = np.concatenate([advantage for advantage, _ in found]) if found else np.empty(0)
    count, total, squares = setting.group.sum([len(every), every.sum(), (every**2).sum()])
    mean = total / max(1.0, count)
    deviation = float(np.sqrt(max(0.0, squares / max(1.0, count) - mean**2)))
    return [
        TokenAdvantages((advantage - mean) / (deviation + 1e-8), value, target)
        for (advantage, target), value in zip(found, values, strict=True)
    ]


def loss(parameters: Parameters, scores: Scores, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    assert scores.value is not None and tokens.target is not None and tokens.old is not None  # noqa: PT018
    found, clipped = losses.clipped_surrogate(
        scores.log_prob,
        tokens.behaviour,
        tokens.advantage,
        tokens.weight,
        parameters.clip_low,
        parameters.clip_high,
        max(parameters.ratio_cap, 1.0 + parameters.clip_high),
    )
    error = losses.value_loss(scores.value, tokens.target, tokens.old, tokens.weight, parameters.value_clip)
    return found, parameters.value_coefficient * error, clipped


def learner(parameters: Parameters, setting: Setting) -> PolicyGradient:
    """A fresh learner at step 0."""
    return PolicyGradient(parameters, setting, Objective(judge, loss, values=True))


register(LanguageTraits("ppo-lm", learner, values=True))
