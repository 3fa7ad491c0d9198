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

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer.language import losses, rows
from learnloop_trainer.language.network import (
    Arrays,
    LanguageLearner,
    Round,
    Scores,
    Setting,
    Stepper,
    Sums,
    spread,
    token_weights,
)

Floats = NDArray[np.float64]
CURVES = (
    "reward",
    "success",
    "length",
    "turns",
    "truncated",
    "broken",
    "rejected",
    "loss",
    "kl",
    "entropy",
    "clipped",
    "mismatch",
    "value_loss",
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Parts of the loss of a batch; all float32 [n]. `old`, `target` only with a value head."""

    behaviour: torch.Tensor
    advantage: torch.Tensor
    weight: torch.Tensor
    old: torch.Tensor | None
    target: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch with the base model's log-probabilities of its sampled tokens, float32 [n]; None without a KL term."""

    batch: rows.TokenBatch
    base: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class TokenAdvantages:
    """The advantage of each sampled token of an episode, and with a value head its old value and target: [tokens]."""

    advantage: Floats
    old: Floats | None = None
    target: Floats | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """The differences among these algorithms.

    Attributes:
        judge: episodes of this rank and, with a value head, the values of their tokens, to advantages.
        loss: of a batch: the loss, the loss of the value head (0 without one), and 1 where a clip is active.
        values: whether it has a value head.
    """

    judge: Callable[[Parameters, Setting, Sequence[rows.Episode], Sequence[Floats] | None], list[TokenAdvantages]]
    loss: Callable[[Parameters, Scores, Tokens], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    values: bool = False


class PolicyGradient(LanguageLearner):
    def __init__(self, parameters: Parameters, setting: Setting, objective: Objective) -> None:
        super().__init__(parameters, setting)
        self._objective, self._rounds = objective, 0

    def iterate(self) -> Round:
        """One round: episodes, then `epochs` x `minibatches` updates."""
        began = time.monotonic()
        setting, parameters = self.setting, self.parameters
        episodes = setting.experience.episodes(self.network, self._rounds)
        episodes = [episode for episode in episodes if episode.sampled]
        sums = Sums()
        for episode in episodes:
            _note(sums, episode)
        parts = [self._prepared(episodes, number) for number in range(parameters.minibatches)]
        judged = self._judged(episodes, parts)
        stepper = Stepper(parameters, setting)
        for epoch in range(parameters.epochs):
            for number, part in enumerate(parts):
                self._update(episodes, part, judged, stepper, sums, first=epoch == 0 and number == 0)
        (count, reward, tokens) = setting.group.sum(
            [len(episodes), sum(episode.reward for episode in episodes), sum(episode.sampled for episode in episodes)]
        )
        self._rounds += 1
        self.step += max(1, round(count))
        curves = sums.means(setting.group, CURVES)
        curves |= {"tokens_per_second": tokens / max(1e-6, time.monotonic() - began)}
        curves |= {"gradient_norm": float(np.mean(stepper.norms))} if stepper.norms else {}
        return Round([reward / count] if count else [], curves)

    def _prepared(self, episodes: Sequence[rows.Episode], number: int) -> list[Prepared]:
        """Batches of minibatch `number`, once for all epochs: neither rows nor the base's opinion of them change."""
        members = [at for at, episode in enumerate(episodes) if episode.group % self.parameters.minibatches == number]
        network, budget = self.network, self.parameters.tokens_per_batch
        token_batches = rows.batches(episodes, members, budget, network.device)
        if not self.parameters.kl_coefficient:
            return [Prepared(batch, None) for batch in token_batches]
        return [Prepared(batch, network.score_base(batch)) for batch in token_batches]

    def _judged(self, episodes: Sequence[rows.Episode], parts: Sequence[Sequence[Prepared]]) -> list[TokenAdvantages]:
        values = self._values(len(episodes), parts) if self._objective.values else None
        return self._objective.judge(self.parameters, self.setting, episodes, values)

    def _values(self, count: int, parts: Sequence[Sequence[Prepared]]) -> list[Floats]:
        estimates: list[Floats] = [np.empty(0)] * count
        for batch in (prepared.batch for part in parts for prepared in part):
            value = self.network.values(batch)
            for place, member in enumerate(batch.members):
                estimates[member] = value[batch.episode == place].double().cpu().numpy()
        return estimates

    def _update(
        self,
        episodes: Sequence[rows.Episode],
        part: Sequence[Prepared],
        judged: Sequence[TokenAdvantages],
        stepper: Stepper,
        sums: Sums,
        *,
        first: bool,
    ) -> None:
        (total,) = self.setting.group.sum([float(sum(len(prepared.batch.members) for prepared in part))])
        if not total:
            return
        weights = token_weights(episodes, total)
        for prepared in part:
            self._backward(prepared, judged, weights, sums, first=first)
        stepper.step(self.step)

    def _backward(
        self,
        prepared: Prepared,
        judged: Sequence[TokenAdvantages],
        weights: Sequence[float],
        sums: Sums,
        *,
        first: bool,
    ) -> None:
        parameters, batch, base = self.parameters, prepared.batch, prepared.base
        scores = self.network.score(batch, entropy_gradient=bool(parameters.entropy_coefficient))
        weight = spread(weights, batch.members, batch.episode)
        fits = losses.accepted(
            scores.log_prob, batch.behaviour, batch.episode, len(batch.members), parameters.sequence_ratio_limit
        )
        tokens = _tokens(batch, judged, weight * fits)
        loss, value_loss, clipped = self._objective.loss(parameters, scores, tokens)
        whole = loss + value_loss
        if base is not None:
            importance = losses.capped(scores.log_prob, batch.behaviour, parameters.ratio_cap)
            whole = whole + parameters.kl_coefficient * losses.kl_penalty(
                scores.log_prob, base, tokens.weight, importance
            )
        if parameters.entropy_coefficient:
            whole = whole - parameters.entropy_coefficient * (tokens.weight * scores.entropy).sum()
        torch.autograd.backward(whole)
        count = float(len(weight))
        with torch.no_grad():
            sums.add("entropy", scores.entropy.sum(), count)
            sums.add("clipped", clipped.sum(), count)
            sums.add("rejected", (1.0 - fits).sum(), count)
            sums.add("loss", loss, 1.0)
            if tokens.target is not None:
                sums.add("value_loss", value_loss, 1.0)
            if first:  # before anything was learned from them: what server and trainer disagree on
                sums.add("mismatch", (scores.log_prob - batch.behaviour).abs().sum(), count)
            if base is not None:
                sums.add("kl", losses.kl_estimate(scores.log_prob, base).sum(), count)

    def shared(self) -> Arrays:
        return super().shared() | {"rounds": np.asarray([self._rounds], dtype=np.int64)}

    def restore(self, shared: Mapping[str, NDArray[np.generic]]) -> None:
        super().restore(shared)
        self._rounds = int(shared["rounds"][0])


def _tokens(batch: rows.TokenBatch, judged: Sequence[TokenAdvantages], weight: torch.Tensor) -> Tokens:
    def gathered(name: str) -> torch.Tensor | None:
        parts = [getattr(judged[member], name) for member in batch.members]
        if parts[0] is None:
            return None
        return torch.from_numpy(np.concatenate(parts).astype(np.float32)).to(weight.device)

    advantage = gathered("advantage")
    assert advantage is not None  # every objective judges
    return Tokens(batch.behaviour, advantage, weight, gathered("old"), gathered("target"))


def _note(sums: Sums, episode: rows.Episode) -> None:
    sums.add("reward", episode.reward, 1)
    if episode.success is not None:
        sums.add("success", float(episode.success), 1)
    sums.add("length", episode.sampled, 1)
    sums.add("truncated", float(episode.truncated), 1)
    sums.add("broken", episode.broken, 1)
    for name in ("turns",):
        if name in episode.values:
            sums.add(name, episode.values[name], 1)


Loss = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""The loss, the loss of the value head (0 without one), and 1 where a clip is active."""


def _grouped(episodes: Sequence[rows.Episode]) -> tuple[Floats, losses.Groups]:
    """Rewards and groups of episodes: [episodes] each."""
    rewards = np.asarray([episode.reward for episode in episodes], dtype=np.float64)
    return rewards, np.asarray([episode.group for episode in episodes], dtype=np.int64)


def _throughout(episodes: Sequence[rows.Episode], advantage: Floats) -> list[TokenAdvantages]:
    return [
        TokenAdvantages(np.full(episode.sampled, number))
        for episode, number in zip(episodes, advantage.tolist(), strict=True)
    ]


def _judge_rloo(
    parameters: Parameters, setting: Setting, episodes: Sequence[rows.Episode], values: Sequence[Floats] | None
) -> list[TokenAdvantages]:
    del parameters, setting, values
    return _throughout(episodes, losses.leave_one_out(*_grouped(episodes)))


def _judge_grpo(
    parameters: Parameters, setting: Setting, episodes: Sequence[rows.Episode], values: Sequence[Floats] | None
) -> list[TokenAdvantages]:
    del setting, values
    return _throughout(episodes, losses.standardised(*_grouped(episodes), scale=parameters.scale_by_deviation))


def _judge_ppo(
    parameters: Parameters, setting: Setting, episodes: Sequence[rows.Episode], values: Sequence[Floats] | None
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
