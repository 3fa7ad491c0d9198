"""Losses of language models, and the advantages of their tokens."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import logsigmoid, softplus

Floats = NDArray[np.float64]
Groups = NDArray[np.int64]


def _totals(values: Floats, group: Groups) -> tuple[NDArray[np.intp], Floats, Floats]:
    _, index = np.unique(group, return_inverse=True)
    total = np.asarray(np.bincount(index, weights=values), dtype=np.float64)
    return index, total, np.bincount(index).astype(np.float64)


def leave_one_out(reward: Floats, group: Groups) -> Floats:
    """A_i = R_i - mean of the group's other rewards; 0 for one that is alone (Kool et al., 2019; arXiv 2402.14740)."""
    index, total, count = _totals(reward, group)
    others = (total[index] - reward) / np.maximum(count[index] - 1, 1)
    return np.where(count[index] > 1, reward - others, 0.0)


def standardised(reward: Floats, group: Groups, *, scale: bool = True, least: float = 1e-4) -> Floats:
    """A_i = (R_i - mean) / (std + least) over the group, with n - 1 (arXiv 2402.03300); `scale` False: no division.

    Without the division hard and easy tasks weigh alike (arXiv 2503.20783).
    """
    index, total, count = _totals(reward, group)
    centred = reward - (total / count)[index]
    if not scale:
        return centred
    deviation = np.sqrt(np.bincount(index, weights=centred**2) / np.maximum(count - 1, 1))
    return np.where(count[index] > 1, centred / (deviation[index] + least), 0.0)


def token_advantages(values: Floats, reward: float, discount: float, trace: float) -> tuple[Floats, Floats]:
    """Generalised advantage estimation over the sampled tokens of one episode (arXiv 1506.02438).

    `values` [tokens]: of the state each token was drawn in. The reward comes with the last token, and nothing
    follows it. What the world says between two sampled tokens takes no step. Returns advantages and targets of the
    values.
    """
    advantage = np.zeros_like(values)
    following, carried = 0.0, 0.0
    for step in range(len(values) - 1, -1, -1):
        earned = reward if step == len(values) - 1 else 0.0
        delta = earned + discount * following - values[step]
        carried = delta + discount * trace * carried
        advantage[step] = carried
        following = values[step]
    return advantage, advantage + values


# Symbols: at a sampled token, `l` is the log-probability of the network that learns; `b` is that of the policy that
# drew the token, as it was recorded; `r` is that of the base model (the adapter switched off). `w` is the token's
# weight: 1 over the sampled tokens of its episode, times 1 over the episodes of the update, so that each rollout
# counts the same, long or short. A is the advantage of the episode, or of the token. `sg` stops the gradient. The
# importance ratio is rho = exp(l - b): the anchor is what was *recorded*, not a second opinion of the trainer's, so
# that a server which computes a little differently is corrected too. All inputs and results are float32 or float64
# tensors [tokens], or scalars; nothing here knows of a model. Sources: Williams (1992); Schulman et al. (2017), arXiv
# 1707.06347; Ye et al. (2020), arXiv 1912.09729 (dual clip); Ahmadian et al. (2024), arXiv 2402.14740 (RLOO); Shao et
# al. (2024), arXiv 2402.03300 (GRPO); Rafailov et al. (2023), arXiv 2305.18290 (DPO); Espeholt et al. (2018), arXiv
# 1802.01561 (cut ratios); Schulman (2020), "Approximating KL divergence" (the estimators k2 and k3); Bradley & Terry
# (1952).

Tensor = torch.Tensor


def ratio(log_prob: Tensor, behaviour: Tensor) -> Tensor:
    """rho = exp(l - b), kept within e^±20 so that a broken record cannot make an infinity."""
    return torch.exp((log_prob - behaviour).clamp(-20.0, 20.0))


def capped(log_prob: Tensor, behaviour: Tensor, cap: float) -> Tensor:
    """sg(min(rho, cap)): the importance weight, its variance bounded by the cap."""
    return ratio(log_prob.detach(), behaviour).clamp_max(cap)


def geometric_means(log_prob: Tensor, behaviour: Tensor, episode: Tensor, episodes: int) -> Tensor:
    """exp of the mean of l - b over each episode's tokens: [episodes]; 1 where an episode has none.

    `episode`: int64 [tokens], the number of the token's episode.
    """
    zeros = log_prob.new_zeros(episodes)
    total = zeros.index_add(0, episode, (log_prob - behaviour).detach())
    count = zeros.index_add(0, episode, torch.ones_like(behaviour))
    return torch.exp((total / count.clamp_min(1.0)).clamp(-20.0, 20.0))


def accepted(log_prob: Tensor, behaviour: Tensor, episode: Tensor, episodes: int, limit: float) -> Tensor:
    """1 at tokens of episodes whose geometric mean ratio lies in [1 / limit, limit], else 0: [tokens].

    A whole sequence is rejected: one whose tokens the present policy would hardly have drawn teaches only noise.
    """
    mean = geometric_means(log_prob, behaviour, episode, episodes)
    fits = (mean <= limit) & (mean >= 1.0 / limit)
    return fits.to(log_prob.dtype)[episode]


def policy_gradient(log_prob: Tensor, behaviour: Tensor, advantage: Tensor, weight: Tensor, cap: float) -> Tensor:
    """L = -sum w sg(min(rho, cap)) A l. On-policy rho is 1, and this is REINFORCE."""
    return -(weight * capped(log_prob, behaviour, cap) * advantage * log_prob).sum()


def clipped_surrogate(
    log_prob: Tensor, behaviour: Tensor, advantage: Tensor, weight: Tensor, low: float, high: float, cap: float
) -> tuple[Tensor, Tensor]:
    """L = -sum w max(min(rho A, clip(rho, 1 - low, 1 + high) A), cap A where A < 0), and where a clip is active.

    Returns the loss and a float [tokens] that is 1 where the token has no gradient.
    """
    rho = ratio(log_prob, behaviour)
    least = torch.minimum(rho * advantage, rho.clamp(1.0 - low, 1.0 + high) * advantage)
    bounded = torch.where(advantage < 0, torch.maximum(least, cap * advantage), least)
    still = ((advantage > 0) & (rho > 1.0 + high)) | ((advantage < 0) & ((rho < 1.0 - low) | (rho > cap)))
    return -(weight * bounded).sum(), still.to(log_prob.dtype)


def kl_penalty(log_prob: Tensor, reference: Tensor, weight: Tensor, importance: Tensor) -> Tensor:
    """sum w sg(rho') (l - r)^2 / 2, whose gradient is that of KL(policy || base) on-policy (k2 as a loss)."""
    return (weight * importance.detach() * (log_prob - reference).square() / 2).sum()


def kl_estimate(log_prob: Tensor, reference: Tensor) -> Tensor:
    """exp(r - l) - (r - l) - 1 at each token: at least 0, and in the mean KL(policy || base) (k3), for curves."""
    gap = (reference - log_prob).clamp(-20.0, 20.0)
    return torch.exp(gap) - gap - 1.0


def value_loss(value: Tensor, target: Tensor, old: Tensor, weight: Tensor, clip: float) -> Tensor:
    """sum w max((v - R)^2, (clip(v, v_old ± clip) - R)^2) / 2."""
    clipped = old + (value - old).clamp(-clip, clip)
    return (weight * torch.maximum((value - target).square(), (clipped - target).square()) / 2).sum()


def negative_log_likelihood(log_prob: Tensor, weight: Tensor) -> Tensor:
    """-sum w l."""
    return -(weight * log_prob).sum()


def preference(
    chosen: Tensor, rejected: Tensor, chosen_base: Tensor, rejected_base: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """-log sigmoid(beta ((l_c - r_c) - (l_r - r_r))) of each pair, and that margin; sums over answers: [pairs]."""
    margin = beta * ((chosen - chosen_base) - (rejected - rejected_base))
    return -logsigmoid(margin), margin.detach()


def score_penalty(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(s_c^2 + s_r^2) / 2 of each pair: differences of scores leave their origin open."""
    return (chosen.square() + rejected.square()) / 2


def bradley_terry(chosen: Tensor, rejected: Tensor) -> Tensor:
    """-log sigmoid(s_c - s_r) of the scores [pairs] of each pair."""
    return softplus(rejected - chosen)
