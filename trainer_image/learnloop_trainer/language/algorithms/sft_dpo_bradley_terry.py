"""Learning from demonstrations, and from pairs of answers of which people preferred one.

Supervised fine-tuning raises the likelihood of what was said in demonstrations:

    L = -sum w l,   w = 1 / (tokens of the demonstration x demonstrations of the update)

Only the assistant's own tokens are learned; what the user and the tools said is context.

DPO (Rafailov et al., 2023, arXiv 2305.18290; the second term: Pang et al., 2024, arXiv 2404.19733). With sums l over
the tokens of an answer, r of the base model and n tokens in the chosen answer:

    L = -log sigmoid(beta ((l_c - r_c) - (l_r - r_r))) - alpha l_c / n

Without the second term both answers may become unlikely, and the model's best answer with them: in the tiny world the
sampled success rises and the greedy one falls.

A reward model (Bradley & Terry, 1952; Stiennon et al., 2020, arXiv 2009.01325) gives one number for an answer, such
that differences say which of two answers people prefer. With s the score, read by a linear head at the last token:

    L = -log sigmoid(s_c - s_r) + lambda (s_c^2 + s_r^2) / 2

The second term fixes what differences leave open. Some pairs are held out and never learned from. `totalSteps` counts
demonstrations or pairs, again and again; each pass takes them in another order.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from learnloop_environments import errors, randomness
from learnloop_trainer.language import losses
from learnloop_trainer.language.network import LanguageLearner, Round, Stepper, Sums, spread, token_weights
from learnloop_trainer.language.rows import OTHERS, Episode, Pair, TokenBatch, batched_pairs, batches, make

CURVES = ("loss", "entropy", "length")


def numbers(count: int, size: int, begin: int, seed: int) -> list[int]:
    """Numbers of a batch of `count` things that begins with the `begin`-th: pass after pass, each in its order."""
    members: list[int] = []
    while len(members) < size:
        epoch, offset = divmod(begin + len(members), count)
        order = randomness.generator(randomness.Purpose.SHUFFLE, seed, epoch).permutation(count)
        members += order[offset : offset + size - len(members)].tolist()
    return members


class Sft(LanguageLearner):
    _demonstrations: Sequence[Episode] | None = None

    def _fetched(self) -> Sequence[Episode]:
        if self._demonstrations is None:
            least = self.parameters.min_reward
            self._demonstrations = [
                episode
                for episode in self.setting.experience.every()
                if episode.sampled and (least is None or episode.reward >= least)
            ]
            if not self._demonstrations:
                fix = "record some, or lower spec.sft.minReward"
                raise errors.ConfigError("spec.data", "", "has no demonstrations", fix)
        return self._demonstrations

    def iterate(self) -> Round:
        every, setting, size = self._fetched(), self.setting, self.parameters.batch_episodes
        chosen = numbers(len(every), size, self.step, setting.seed)
        share = setting.group.place.share(size)
        local = [every[number] for number in chosen[share.start : share.stop]]
        weights, sums = token_weights(local, float(size)), Sums()
        for batch in batches(local, range(len(local)), self.parameters.tokens_per_batch, self.network.device):
            scores = self.network.score(batch)
            loss = losses.negative_log_likelihood(scores.log_prob, spread(weights, batch.members, batch.episode))
            torch.autograd.backward(loss)
            sums.add("loss", -scores.log_prob.detach().sum(), len(scores.log_prob))
            sums.add("entropy", scores.entropy.detach().sum(), len(scores.log_prob))
            sums.add("length", len(scores.log_prob), len(batch.members))
        stepper = Stepper(self.parameters, setting)
        stepper.step(self.step)
        self.step += size
        return Round([], sums.means(setting.group, CURVES) | {"gradient_norm": stepper.norms[0]})


DPO_CURVES = ("loss", "margin", "accuracy", "chosen_log_prob", "rejected_log_prob")
REWARD_CURVES = ("loss", "margin", "accuracy", "chosen_score", "rejected_score")
LEAST = 10
"""Pairs on either side: of fewer, no accuracy says anything."""


@dataclass(frozen=True, slots=True)
class Divided:
    """Pairs to learn from, pairs that are held out, and a SHA-256 over the latter."""

    learned: Sequence[Pair]
    held_out: Sequence[Pair]
    sha256: str


def divided(pairs: Sequence[Pair], share: float, seed: int) -> Divided:
    """`share` of the pairs is held out, the same ones for the same pairs and seed whatever their order.

    Two answers that several people compared are on one side, whichever they preferred. Pairs of other agents than the
    run's own prove nothing: what is held out of them is not learned from either. Raises ConfigError for too few.
    """
    keyed = [(_key(pair, seed), pair) for pair in pairs if pair.chosen.sampled and pair.rejected.sampled]
    keys = sorted({key for key, pair in keyed if pair.chosen.group != OTHERS})
    away = set(keys[: round(share * len(keys))])
    learned = [pair for key, pair in keyed if key not in away]
    held_out = [pair for key, pair in keyed if key in away and pair.chosen.group != OTHERS]
    if min(len(learned), len(held_out)) < LEAST:
        problem = (
            f"has {len(learned)} preferences to learn from and {len(held_out)} held out, {LEAST} are needed of each"
        )
        raise errors.ConfigError("spec.data", "", problem, "collect more by POST /api/v1/preferences")
    return Divided(learned, held_out, hashlib.sha256("".join(sorted(away)).encode()).hexdigest())


def _key(pair: Pair, seed: int) -> str:
    both = sorted((_digest(pair.chosen), _digest(pair.rejected)))
    return hashlib.sha256(f"{seed} {both[0]} {both[1]}".encode()).hexdigest()


def _digest(answer: Episode) -> str:
    hasher = hashlib.sha256()
    for row in answer.rows:
        hasher.update(len(row.ids).to_bytes(8, "big") + row.ids.astype("<i8").tobytes() + row.sampled.tobytes())
    return hasher.hexdigest()


class _ByPairs(LanguageLearner):
    """A learner over pairs; they are fetched by the first `iterate`, or restored."""

    def _backward(self, pairs: Sequence[Pair], size: float, sums: Sums) -> None:
        """Add the gradient of some of `size` pairs, and note measurements of them."""
        raise NotImplementedError

    def _updated(self, every: Sequence[Pair], curves: Sequence[str]) -> Round:
        parameters, setting, sums = self.parameters, self.setting, Sums()
        size = parameters.batch_pairs
        drawn = [every[at] for at in numbers(len(every), size, self.step, setting.seed)]
        share = setting.group.place.share(size)
        for pairs in batched_pairs(drawn[share.start : share.stop], parameters.tokens_per_batch):
            self._backward(pairs, float(size), sums)
        stepper = Stepper(parameters, setting)
        stepper.step(self.step)
        self.step += size
        return Round([], sums.means(setting.group, curves) | {"gradient_norm": stepper.norms[0]})


class Dpo(_ByPairs):
    _pairs: Sequence[Pair] | None = None

    def _fetched(self) -> Sequence[Pair]:
        if self._pairs is None:
            every = self.setting.experience.pairs()
            self._pairs = [pair for pair in every if pair.chosen.sampled and pair.rejected.sampled]
            if not self._pairs:
                fix = "collect preferences by POST /api/v1/preferences"
                raise errors.ConfigError("spec.data", "", "has no pairs that prefer one answer to another", fix)
        return self._pairs

    def iterate(self) -> Round:
        return self._updated(self._fetched(), DPO_CURVES)

    def _backward(self, pairs: Sequence[Pair], size: float, sums: Sums) -> None:
        episodes = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
        batch = make(episodes, range(len(episodes)), self.network.device)
        base = _answers(self.network.score_base(batch), batch)
        answers = _answers(self.network.score(batch).log_prob, batch)
        half = len(pairs)
        penalty, margin = losses.preference(
            answers[:half], answers[half:], base[:half], base[half:], self.parameters.beta
        )
        lengths = torch.tensor([pair.chosen.sampled for pair in pairs], dtype=torch.float32, device=answers.device)
        likelihood = losses.negative_log_likelihood(answers[:half], 1.0 / lengths)
        loss = (penalty.sum() + self.parameters.nll_coefficient * likelihood) / size
        torch.autograd.backward(loss)
        with torch.no_grad():
            sums.add("loss", penalty.sum(), half)
            sums.add("margin", margin.sum(), half)
            sums.add("accuracy", (margin > 0).sum(), half)
            sums.add("chosen_log_prob", answers[:half].sum(), half)
            sums.add("rejected_log_prob", answers[half:].sum(), half)


def _answers(log_prob: torch.Tensor, batch: TokenBatch) -> torch.Tensor:
    """Sums over the tokens of each answer: [episodes]."""
    return log_prob.new_zeros(len(batch.members)).index_add(0, batch.episode, log_prob)


class BradleyTerry(_ByPairs):
    _divided: Divided | None = None

    @property
    def pairs(self) -> Divided:
        """All pairs, divided. Collective the first time; raises ConfigError for too few."""
        if self._divided is None:
            every = self.setting.experience.pairs()
            self._divided = divided(every, self.parameters.held_out_share, self.setting.seed)
        return self._divided

    def iterate(self) -> Round:
        return self._updated(self.pairs.learned, REWARD_CURVES)

    def _backward(self, pairs: Sequence[Pair], size: float, sums: Sums) -> None:
        episodes = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
        scores = self.network.answer_scores(make(episodes, range(len(episodes)), self.network.device))
        half = len(pairs)
        chosen, rejected = scores[:half], scores[half:]
        penalty = losses.bradley_terry(chosen, rejected)
        small = losses.score_penalty(chosen, rejected)
        loss = (penalty.sum() + self.parameters.score_decay * small.sum()) / size
        torch.autograd.backward(loss)
        with torch.no_grad():
            sums.add("loss", penalty.sum(), half)
            sums.add("margin", (chosen - rejected).sum(), half)
            sums.add("accuracy", (chosen > rejected).sum(), half)
            sums.add("chosen_score", chosen.sum(), half)
            sums.add("rejected_score", rejected.sum(), half)
