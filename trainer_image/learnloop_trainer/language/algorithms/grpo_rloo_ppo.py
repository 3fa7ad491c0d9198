"""Learning from rewarded conversations: RLOO, GRPO and PPO.

RLOO (Ahmadian et al., 2024, arXiv 2402.14740; Kool et al., 2019): the other episodes about the same task are the
baseline.

    A_i = R_i - 1/(K-1) sum_{j != i} R_j,    L = -sum w sg(min(rho, cap)) A l

GRPO (Shao et al., 2024, arXiv 2402.03300; the wider upper clip: Yu et al., 2025, arXiv 2503.14476): advantages in units
of the group's deviation, and a clipped ratio. `scaleByDeviation: false` leaves the division out (arXiv 2503.20783).

    A_i = (R_i - mean(R)) / (std(R) + 1e-4),    L = -sum w min(rho A, clip(rho, 1 - low, 1 + high) A)

PPO (Schulman et al., 2017, arXiv 1707.06347; over tokens: Ouyang et al., 2022, arXiv 2203.02155): a value head on the
last hidden state, which begins at 0 and shares the model. The reward comes with the last sampled token, advantages by
GAE over sampled tokens alone, then less their mean and by their deviation over all ranks.

    L = -sum w min(rho A, clip(rho, 1 ± eps) A) + c_v sum w max((v - R)^2, (clip(v) - R)^2) / 2

Deviations, all deliberate:
- The ratio's denominator is the recorded log-probability, so it corrects the server's own error too.
- Where A < 0 a clipped objective is bounded by `ratioCap` A (dual clip, arXiv 1912.09729).
- The divergence from the base model is a loss of its own with the gradient of the reverse KL (losses.kl_penalty), so
  the reward in the curves stays the world's.
- Tokens are weighed by rollout, not summed: a long conversation does not count more than a short one.
"""

from collections.abc import Sequence

import numpy as np
import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer.language import losses
from learnloop_trainer.language.network import Scores, Setting
from learnloop_trainer.language.policy_gradient import Floats, Objective, PolicyGradient, TokenAdvantages, Tokens
from learnloop_trainer.language.rows import Episode

Loss = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""The loss, the loss of the value head (0 without one), and 1 where a clip is active."""


def _grouped(episodes: Sequence[Episode]) -> tuple[Floats, losses.Groups]:
    """Rewards and groups of episodes: [episodes] each."""
    rewards = np.asarray([episode.reward for episode in episodes], dtype=np.float64)
    return rewards, np.asarray([episode.group for episode in episodes], dtype=np.int64)


def _throughout(episodes: Sequence[Episode], advantage: Floats) -> list[TokenAdvantages]:
    return [
        TokenAdvantages(np.full(episode.sampled, number))
        for episode, number in zip(episodes, advantage.tolist(), strict=True)
    ]


def _judge_rloo(
    parameters: Parameters, setting: Setting, episodes: Sequence[Episode], values: Sequence[Floats] | None
) -> list[TokenAdvantages]:
    del parameters, setting, values
    return _throughout(episodes, losses.leave_one_out(*_grouped(episodes)))


def _judge_grpo(
    parameters: Parameters, setting: Setting, episodes: Sequence[Episode], values: Sequence[Floats] | None
) -> list[TokenAdvantages]:
    del setting, values
    return _throughout(episodes, losses.standardised(*_grouped(episodes), scale=parameters.scale_by_deviation))


def _judge_ppo(
    parameters: Parameters, setting: Setting, episodes: Sequence[Episode], values: Sequence[Floats] | None
) -> list[TokenAdvantages]:
    """Collective: mean and deviation of the advantages are those of all ranks."""
    assert values is not None  # the objective has a value head
    judged = [
        losses.token_advantages(value, episode.reward, parameters.discount, parameters.gae_lambda)
        for episode, value in zip(episodes, values, strict=True)
    ]
    every = np.concatenate([advantage for advantage, _ in judged]) if judged else np.empty(0)
    count, total, squares = setting.group.sum([len(every), every.sum(), (every**2).sum()])
    mean = total / max(1.0, count)
    deviation = float(np.sqrt(max(0.0, squares / max(1.0, count) - mean**2)))
    return [
        TokenAdvantages((advantage - mean) / (deviation + 1e-8), value, target)
        for (advantage, target), value in zip(judged, values, strict=True)
    ]


def _capped(parameters: Parameters, scores: Scores, tokens: Tokens) -> Loss:
    cap = parameters.ratio_cap
    loss = losses.policy_gradient(scores.log_prob, tokens.behaviour, tokens.advantage, tokens.weight, cap)
    beyond = losses.ratio(scores.log_prob.detach(), tokens.behaviour) > cap
    return loss, loss.new_zeros(()), beyond.to(torch.float32)


def _clipped(parameters: Parameters, scores: Scores, tokens: Tokens) -> Loss:
    low, high = parameters.clip_low, parameters.clip_high
    cap = max(parameters.ratio_cap, 1.0 + high)
    loss, clipped = losses.clipped_surrogate(
        scores.log_prob, tokens.behaviour, tokens.advantage, tokens.weight, low, high, cap
    )
    if tokens.target is None or tokens.old is None or scores.value is None:
        return loss, loss.new_zeros(()), clipped
    error = losses.value_loss(scores.value, tokens.target, tokens.old, tokens.weight, parameters.value_clip)
    return loss, parameters.value_coefficient * error, clipped


def rloo(parameters: Parameters, setting: Setting) -> PolicyGradient:
    return PolicyGradient(parameters, setting, Objective(_judge_rloo, _capped))


def grpo(parameters: Parameters, setting: Setting) -> PolicyGradient:
    return PolicyGradient(parameters, setting, Objective(_judge_grpo, _clipped))


def ppo(parameters: Parameters, setting: Setting) -> PolicyGradient:
    return PolicyGradient(parameters, setting, Objective(_judge_ppo, _clipped, values=True))
